"""What does the operator see and touch? Control, health, dead letters, and checks of the broker."""
