"""How does a session run, end, and go on after a crash? Here messages also meet their sessions."""
