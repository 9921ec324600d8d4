"""How do sums stay secret? What an engine is, and the engines' common ground."""
