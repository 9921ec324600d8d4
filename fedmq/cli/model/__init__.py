"""How is a model made, served and examined? Its commands, and the load that measures scores."""
