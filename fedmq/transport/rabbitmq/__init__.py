"""How does a message travel over RabbitMQ? Addresses, topology, connection and link."""
