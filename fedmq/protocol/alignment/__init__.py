"""How are common ids found? One machine per side."""
