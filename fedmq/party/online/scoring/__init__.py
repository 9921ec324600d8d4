"""How does the label holder make a score? Requests, batches, and parties that are away."""
