"""What the encrypting engines count with: keys, noise, sums and packing on big integers."""
