"""How is a daemon run and looked after? One command a file."""
