"""What does a label holder ask of another party about a model? One machine per side."""
