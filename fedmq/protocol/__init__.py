"""When is what said? Sans-IO state machines; here, what all sessions share."""
