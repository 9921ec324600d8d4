"""fedmq: vertical federated gradient boosting over a message broker."""
