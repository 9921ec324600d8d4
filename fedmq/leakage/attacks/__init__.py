"""What does each attack compute? Attacks over arrays alone, a file for each thing they read.

===========================  =======================================================================
``labels``                   a passive party guesses labels from nodes, gradients and leaf weights
``splitting_matrix``         the active party of ``smm1`` reads the splitting matrix from W
``row_order``                the active party puts rows in order by the splits that others won
``bins_from_sums``           the active party reads who stands in which bin from decrypted sums
``leaves_from_scores``       the active party reads leaves off a score, whose weights it knows
``thresholds_from_changes``  the active party reads thresholds off changes that an owner offers
``finding``                  what an attack achieved, beside what guessing would
===========================  =======================================================================
"""
