"""What does a feature holder answer to an online question, and how often?"""
