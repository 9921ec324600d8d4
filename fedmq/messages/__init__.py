"""What do parties send to one another? Pydantic models and their msgpack form."""
