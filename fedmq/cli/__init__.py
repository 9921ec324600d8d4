"""How do people use it? The ``fedmq`` command."""
