"""How are eight residues multiplied by one instruction? For processors that can (AVX-512 IFMA)."""
