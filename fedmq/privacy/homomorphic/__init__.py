"""How are ciphertexts summed? The two halves of the encrypting engines."""
