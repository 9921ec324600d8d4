"""How does one party receive what it chooses, and the other never learn the choice?

======================  ======================================================================
``base_transfers``      the first 128, by exponentiation
``extension``           any number of transfers of 128
``correlated``          transfers of sums, and products of what two parties hold
======================  ======================================================================
"""
