"""A session kind that a test adds."""
