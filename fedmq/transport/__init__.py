"""How does a message travel? An in-memory broker and RabbitMQ behind one small interface."""
