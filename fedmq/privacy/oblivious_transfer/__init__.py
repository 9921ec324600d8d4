"""How does one party receive what it chooses, and the other never learn the choice?

======================  =======================================================================
``base_transfers``      the first 128, by exponentiation
``machine_columns``     columns of bits summed and turned in the processor's own instructions
``seeds``               all of 16 seeds but one, by four of them
``extension``           any number of transfers, of such seeds, made ahead of what is chosen
``correlated``          transfers of sums, and products of what two parties hold
======================  =======================================================================
"""
