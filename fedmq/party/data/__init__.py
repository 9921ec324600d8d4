"""Where do rows come from? A source becomes a table of float32 columns by id."""
