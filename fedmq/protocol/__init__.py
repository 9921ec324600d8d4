"""When is which message sent? Sans-IO state machines; here, what all sessions share."""
