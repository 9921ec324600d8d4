"""What can a party learn from what it saw? One attack a file, over arrays alone.

Attacks take what one side holds and nothing else; the truth comes in only to score them.
"""
