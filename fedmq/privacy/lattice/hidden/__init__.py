"""Which candidate of a node is the best, if neither side may see a sum?

Both sides hold shares of the sums on the left of all candidates. XGBoost's float32 gains are
computed from them within a garbled circuit, which tells the passive party the best candidate, and
the active party that it won. Several passive parties stand in a chain, of which only the last one's
circuit tells whose candidate is the best of all.

==================  ==========================================================================
``shares``          of a pair (g, h): which halves make them, how they are lifted to integers and
                    squared
``circuits``        a candidate's gain, the best of a party, the best of all, and what the active
                    party knows of a node
``level``           how much of everything a level of nodes takes, and the parcels it travels in
``gains``           gains of many candidates at once, garbled and evaluated
``garbler``         the passive party's half of a level of nodes
``evaluator``       the active party's half
``steps``           what a half computes between two parcels, and how tables flow meanwhile
``active``          the active party of a session whose sums are hidden; another half shares them
``passive``         the passive party of such a session; another half shares its sums
==================  ==========================================================================

The messages of a level. A is the active party, and 1 to K are the passive parties in the order of
their columns, by which ties fall. Each has base transfers, a secret, a public seed and tweaks of
its own with A; nothing of these is shared among passive parties. Up to the fourth answer all of
them work at the same time; only the links, some 70 ANDs a node, wait for one another.

=========  =============================================  =====================================
way        what                                           made and taken by
=========  =============================================  =====================================
A to k     choices of carries                             ``choose_carries``, ``offer_carries``
k to A     numbers for them                               ``offer_carries``, ``choose_squares``
A to k     choices of squares                             ``choose_squares``, ``offer_squares``
k to A     numbers for them                               ``offer_squares``, ``choose_labels``
A to k     choices of labels                              ``choose_labels``, ``pieces``
k to A     labels of k's shares, and tables, in pieces;   ``pieces``, ``take``
           of 1 those of its link as well
k to k+1   k's shares of the best gain so far and its     ``handed``, ``follow``
           owner: 32 bits and up to 5 more a node
A to k+1   choices of labels: A's shares of the same      ``leader``, ``follow``
k+1 to A   tables of its link; of K the colours that      ``follow``, ``take``, ``owners``
           tell A who won each node
A to k     labels of the index in the nodes that k won,   ``claim``, ``winners``
           and zeros for all others
=========  =============================================  =====================================

What k hands on is sealed to k+1: A, which has the other share, would read the best gain of 1 to k
from both. To k+1 it is random bits, and says how many nodes are asked about, which all passive
parties know. If A and k+1 put together what they have, they learn that gain, as A and k learn all
of k's sums if they do. Who is next in the chain is known to all that take part.
"""
