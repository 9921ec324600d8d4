"""How do sums stay secret? One engine a file."""
