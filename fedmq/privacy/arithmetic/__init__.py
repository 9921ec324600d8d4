"""What the encrypting engines count with: keys, noise, sums and packing on big integers.

``scheme``       what every additively homomorphic scheme offers
``paillier``     the scheme of Paillier with the noise of Ma, Han and Lei
``ou``           the scheme of Okamoto and Uchiyama: smaller plaintexts, faster by far
``primes``       the primes that keys are made of
``crt``          residues modulo two coprime numbers
``noise``        random powers of one base from precomputed tables
``lifted``       encryption modulo the square of a secret prime
``sums``         encrypted histograms: sums per node, feature and bin
``joint``        which features to sum together, so that fewer products are needed
``slots``        several pairs (g, h) in one plaintext
``wire``         ciphertext vectors as bytes
"""
