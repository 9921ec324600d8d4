"""Which ways are there to keep sums secret? One engine a file."""
