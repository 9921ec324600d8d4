"""What can be asked of the daemon? One kind of session a file."""
