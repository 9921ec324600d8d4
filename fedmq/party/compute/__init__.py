"""Where does arithmetic run? In other processes, never on the event loop."""
