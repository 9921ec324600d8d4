"""How is a daemon run and looked after? Its commands, and how it logs."""
