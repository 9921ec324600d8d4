"""How does a federation come to be? Commands for folders, keys, broker and data."""
