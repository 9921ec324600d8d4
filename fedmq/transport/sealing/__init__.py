"""How does a message travel unread by the broker? Keys and seals between two parties."""
