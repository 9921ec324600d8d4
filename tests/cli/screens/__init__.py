"""What do people see in a terminal of 80, and of 130 columns? Recorded, and compared."""
