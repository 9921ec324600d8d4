"""With which numbers do the encrypting engines compute? Schemes, noise, sums and packing.

========================  ====================================================================
``scheme``                what every additively homomorphic scheme offers
``paillier``              the scheme of Paillier
``okamoto_uchiyama``      the scheme of Okamoto and Uchiyama
``primes``                the primes that keys are made of
``noise``                 random powers of one base, from tables
``crt``                   residues modulo two coprime numbers
``prime_square``          encryption modulo the square of a secret prime
``packing``               several pairs (g, h) in one plaintext
``encrypted_histogram``   sums of ciphertexts per node, feature and bin
``joint_histogram``       which features to sum together, so that it takes fewer products
``ciphertext_bytes``      ciphertexts as messages carry them
========================  ====================================================================
"""
