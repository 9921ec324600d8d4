"""What does the active party ask of another party about a model? One machine per side."""
