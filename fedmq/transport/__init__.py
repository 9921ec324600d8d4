"""How does it travel? An in-memory broker and RabbitMQ behind one small interface."""
