"""Counts of shared people among simulated parties."""
