"""How does a federation come to be? Folders, keys, broker and data, one command a file."""
