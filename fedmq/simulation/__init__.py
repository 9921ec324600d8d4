"""How do all parties run in one process? The machines, messages and links of the daemons."""
