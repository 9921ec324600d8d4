"""What is said? Pydantic models and their msgpack form."""
