"""How does a party prove who it is? Its files, private keys, and the sealing of envelopes."""
