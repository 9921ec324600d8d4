"""With which numbers do the encrypting engines compute? Schemes, noise, sums and packing."""
