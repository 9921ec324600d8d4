"""Where does arithmetic run? In threads, processes or on other machines, never on the event loop."""
