"""Which candidate of a node is the best, if neither side may see a sum?

Both sides hold shares of the sums on the left of all candidates. XGBoost's float32 gains are
computed from them within a garbled circuit, which tells the feature holder the best candidate, and
the label holder that it won.

==================  ==========================================================================
``field``           shares of a pair (g, h): how long they are, and how they are subtracted
``node_inputs``     what the label holder knows of a node
``gain_circuit``    a candidate's gain, as XGBoost computes it
``lift``            shares that have no carries between g and h any more
``squares``         shares of the squares of both sides' gradients
``tournament``      the best of all candidates, and the label holder's own
``level``           how much of everything a level of nodes takes
``garbler``         the feature holder's half of a level of nodes
``evaluator``       the label holder's half
==================  ==========================================================================
"""
