"""How is a model trained? One machine per side (SecureBoost, Algorithms 1 and 2).

==================  ==============================================================================
``states``          which message is legal in which state, for both sides
``active``          what the active party does: it opens the training, derives gradients, ends it
``active_growth``   how it lets a tree grow: it asks, compares and splits
``passive``         what a passive party does: it accepts the training, and keeps its thresholds
``passive_growth``  how it takes part in a tree: it sums and answers
``terms``           the tables that a training begins with, what it is about, and may it begin?
``model``           the gradients, the trees and the margins so far
``folds``           those of each fold of a cross-validation
``offers``          the rows of each node, and what each party's best split of it is worth
``candidates``      which candidates a node has, and how their owner shows them
``claims``          what a party says of its candidates, and can it be true?
``comparisons``     how winners are found where sums are hidden
``transcripts``     what a passive party commits to, and which messages are signed
==================  ==============================================================================
"""
