"""Which values has a row? In memory, or looked up in a database."""
