"""How is a model trained? One machine per side (SecureBoost, Algorithms 1 and 2).

===================  ==========================================================================
``states``           which message is legal in which state, for both sides
``active``           what the active party does: it opens the training, derives gradients, ends it
``active_growth``    how it lets a tree grow: it asks, compares and splits
``passive``          what a passive party does: it accepts the training, and keeps its thresholds
``passive_opening``  with what it goes into a training, and how it takes up an earlier model
``passive_growth``   how it takes part in a tree: it sums and answers
``terms``            what the training is about, and what each passive party has accepted
``tables``           the tables that a training begins with
``continuation``     may a training continue a model, or an earlier attempt?
``model``            the trees and margins so far
``folds``            those of each fold of a cross-validation
``node_rows``        the rows of each node, as the active party sees them
``level``            what is asked about the nodes of a level, and what is missing
``offers``           the best split of each party, and which of them wins
``consistency``      whether an answer can be true
``circuits``         the parcels by which winners are found where sums are hidden
``candidates``       which candidates a node has, and how their owner shows them
``columns``          what parameters ask of each party's columns, and what is shown of them
``sums_counter``     how many sums are answered, and may be
``commitment``       what a passive party commits to
``transcripts``      which messages are signed, and when
``computations``     the arithmetic that both machines order
===================  ==========================================================================
"""
