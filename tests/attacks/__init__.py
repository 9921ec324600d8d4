"""What can a party, or a stranger, do that it should not? One attack a file; each has to fail."""
