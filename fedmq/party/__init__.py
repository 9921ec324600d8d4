"""Who runs it? One daemon per party, and its rooms."""
