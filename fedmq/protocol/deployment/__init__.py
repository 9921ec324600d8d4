"""How do all parties begin to serve a model together? One machine per side."""
