"""How is a model made, served and examined? One command a file."""
