"""How is a file of ids scored? One machine per side."""
