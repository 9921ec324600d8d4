"""How does it travel unread by the broker? Keys and seals between two parties."""
