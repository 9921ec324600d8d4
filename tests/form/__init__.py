"""How easily is fedmq read? Figures of its form, which may only fall."""
