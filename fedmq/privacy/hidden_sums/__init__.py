"""Which candidate of a node is the best, if neither side may see a sum?

Both sides hold shares of the sums on the left of all candidates. A rough gain of each, with a
proven bound, is computed first, within a garbled circuit of some 350 ANDs: the few candidates that
may be the best go into slots, of which neither party knows the candidate. XGBoost's float32 gains
of those are computed in a second circuit, which tells the passive party the best candidate, and
the active party that it won. A crowded node has 16 slots instead of four. Where even more may be
the best, and in nodes that the first circuit's fixed point does not hold, the second one computes
the gains of all candidates. A circuit between both ranks the few candidates, and the second one
computes the gains of those that its bound leaves in doubt. Several passive
parties stand in a chain, of which only the last one's circuit tells whose candidate is the best of
all.

==================  ==========================================================================
``shares``          of a pair (g, h): which halves make them, how they are lifted to integers and
                    squared
``circuits``        a candidate's gain, the best of a party, the best of all, and what the active
                    party knows of a node
``category_order``  the circuits that sort categories, and tell the winning set of them
``category_sets``   both halves of sets: shares of what is scanned in place of categories
``filter``          the bounds of a rough gain, and what the active party chooses for a node
``products``        shares of what a rough gain is the quotient of
``quotient``        the circuits that find the few candidates, and rank them
``sides``           how arrays travel; each party's transfers and circuits within a level
``stages``          a circuit over many instances at once, garbled and evaluated
``rounds``          which candidates are computed at once: blocks of a node that has very many
``filtering``       both halves of the filter, and fresh shares of those few
``exact``           both halves of a party's best candidate by ranks and XGBoost's gains
``level``           how much of everything a level of nodes takes
``garbler``         the passive party's half of a level of nodes
``evaluator``       the active party's half
``steps``           in which order both halves talk, and what they compute between two parcels
``copies``          what copies of a level begin with, of which the active party checks all but one
``conversation``    what one half says about a copy, until it waits
``proof``           what the passive party signs, and how a false copy is proved to others
``talks``           both halves of all copies at once, and how a lie is found
``active``          the active party of a session whose sums are hidden; another half shares them
``passive``         the passive party of such a session; another half shares its sums
==================  ==========================================================================

The messages of a level. A is the active party, and 1 to K are the passive parties in the order of
their columns, by which ties fall. Each has base transfers, a secret, a public seed and tweaks of
its own with A; nothing of these is shared among passive parties. Up to the links all of them work
at the same time; only the links, some 70 ANDs a node, wait for one another.

=========  =============================================  =====================================
way        what                                           made and taken by
=========  =============================================  =====================================
A to k     with sets: choices of labels of the sums of    ``choose_set_labels``,
           categories                                     ``take_set_labels``
k to A     with sets: tables of weights, in pieces;       ``stages``, ``close_sets``
           tables that sort categories; masked sums
A to k     which nodes fit the filter; choices of         ``begin``
           carries, of x and of d
k to A     numbers for them, and for V and S as choices   ``begin``, ``choose_labels``
           were drawn
A to k     choices of V and S, and of labels              ``choose_labels``, ``take_labels``
k to A     tables of quotients, in pieces; tables that    ``stages``, ``close_filter``
           fill the slots; colours of crowded nodes
A to k     labels of crowded nodes; choices of indices    ``close_filter``, ``offer_entries``
k to A     k's tables of shares, and choices of indices   ``offer_entries``, ``take_entries``
A to k     A's tables of shares; choices of carries,      ``take_entries``, ``read_entries``
           x and d of the slots
both       with ranks: as above, from numbers for them    ``read_entries`` ...
           to tables of quotients, of the slots           ``take_labels``, ``stages``
k to A     with ranks: alone, tables of the link and      ``close_ranking``, ``begin_gains``
           colours that tell A who won each node without
           a doubt; colours of doubtful nodes
A to k     labels of doubtful nodes; choices of carries   ``begin_gains``
           or of labels, or the claim if none is left
k to A     with squares: numbers for carries, and for     ``begin_gains``, ``choose_labels``
           squares as choices were drawn
A to k     choices of squares, and of labels              ``choose_labels``, ``take_labels``
k to A     tables, in pieces; of 1 those of its link too  ``stages``, ``close``
k to k+1   k's shares of the best gain so far and its     ``handed``, ``follow``
           owner: 32 bits and up to 5 more a node
A to k+1   choices of labels: A's shares of the same      ``leader``, ``follow``
k+1 to A   tables of its link; of K the colours that      ``follow``, ``close_link``, ``owners``
           tell A who won each node
A to k     labels of the index in the nodes that k won,   ``claim``, ``winners``
           with sets those of who goes right, and zeros
           for all others
=========  =============================================  =====================================

With sets of categories each link is followed by the circuit that tells the winner's set.

A node of more candidates than are computed at once is cut into blocks: from choices of carries to
tables, of quotients or of gains, all is said about one block after the other. Labels of what the
active party knows of the node are those of the first one.

If no node fits the filter, the first parcel has the choices of carries of gains, or of labels.
The active party waits for five answers if no rank leaves a doubt. Otherwise, in a chain and without
ranks, it waits for the tables of gains, too, for the numbers of squares if gains take some, and for
each link but the first. Requests of further pieces of tables leave before the last ones are needed.

With copies, each of these parcels is about all of them, and k signs its own. Before stand the
active party's choices of seeds and keys, k's answer, and commitments to what k got by it
(`choose_copies`, `offer_copies`, `open_copies`); behind the last parcel that k makes the key that
proves which copy is real, and only then what claims, or is handed on.

What k hands on is sealed to k+1: A, which has the other share, would read the best gain of 1 to k
from both. To k+1 it is random bits, and says how many nodes are asked about, which all passive
parties know. If A and k+1 put together what they have, they learn that gain, as A and k learn all
of k's sums if they do. Who is next in the chain is known to all that take part.
"""
