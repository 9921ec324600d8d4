"""How does it travel over RabbitMQ? Addresses, topology, connection and link."""
