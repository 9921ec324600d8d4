"""What does each attack compute? One attack a file, over arrays alone."""
