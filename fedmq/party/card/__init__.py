"""What does the card of a model say, and who has signed it?"""
