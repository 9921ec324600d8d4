"""How is a score summed over leaves, of which nobody learns which ones they are?"""
