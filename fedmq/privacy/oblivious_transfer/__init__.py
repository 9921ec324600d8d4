"""How does one party receive what it chooses, and the other never learn the choice?

======================  ======================================================================
``base_transfers``      the first 128, by exponentiation
``bit_matrix``          columns of bits as rows
``tweaks``              numbers that no two hashes of a session share
``hashing``             a hash that stays random although its inputs differ by one secret
``extension``           any number of transfers of 128
``consistency``         whether a receiver chose the same in all columns of an extension
``correlated``          transfers of sums, and products of what two parties hold
``wide_integers``       integers modulo 2^128
======================  ======================================================================
"""
