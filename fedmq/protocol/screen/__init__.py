"""How does the active party look at another party's columns before a training? Two machines."""
