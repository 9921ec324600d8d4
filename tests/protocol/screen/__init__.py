"""Screens between simulated parties."""
