"""When is what said? Sans-IO state machines for training and inference."""
