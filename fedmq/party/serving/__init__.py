"""Scores that somebody waits for: rows in memory, batches under way, parties that are away."""
