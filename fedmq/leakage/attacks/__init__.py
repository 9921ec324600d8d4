"""What does each attack compute? One attack a file, over arrays alone.

========================  ====================================================================
``purity``                a passive party guesses the majority of a node
``instance_spaces``       a passive party that knows a few labels guesses those of their nodes
``noisy_gradients``       a passive party averages the gradients that ``plain`` or ``ldp`` disclose
``masked_gradients``      a passive party of ``smm2`` reads labels from the signs of W
``leaf_weights``          what the weights of leaves would add, if a passive party knew them
``splitting_matrix``      the active party of ``smm1`` reads the splitting matrix from W
``feature_order``         the active party puts rows in order by the splits that others won
``bins_from_sums``        the active party reads who stands in which bin from the sums it decrypts
``shared_columns``        the active party puts rows in order by the splits that share a column
``subset_sums``           the active party tries all sets of a small node's rows
``finding``               what an attack achieved, beside what guessing would
========================  ====================================================================
"""
