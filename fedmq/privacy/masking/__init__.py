"""How are matrices hidden in null spaces? The common ground of SMM-1 and SMM-2."""
