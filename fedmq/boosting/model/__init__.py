"""What is a finished model? Trees whose splits are records, and the shares of their owners."""
