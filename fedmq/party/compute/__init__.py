"""Where does arithmetic run? In threads, processes or elsewhere, never on the event loop."""
