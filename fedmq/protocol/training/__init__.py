"""How is a model trained? One machine per side (SecureBoost, Algorithms 1 and 2).

=========================  ====================================================================
``active``                 what the label holder does: it asks, compares and splits
``active_contests``        how it finds winners where sums are hidden
``active_opening``         how it opens the training
``passive``                what a passive party does: it sums, answers and keeps its thresholds
``passive_growth``         the tree that grows, as a passive party sees it
``candidates``             which candidates of a node are offered, and in which order
``columns``                what parameters ask of columns, and what is disclosed of them
``states``                 which message is legal in which state, for both
``handshake``              who takes part, and from which tree on
``tables``                 the tables that a training begins with
``model_builder``          the trees and margins so far
``fold_models``            those of each fold of a cross-validation
``round``                  margins of a round of one tree for each class
``dart_round``             rounds that leave trees out and weigh them
``tree_builder``           rows of each node, as the label holder sees them
``level``                  what is asked of the nodes of a level, and what is missing
``own_candidates``         the label holder's own candidates and their gains
``answers``                gains from what another party answered
``contests``               which nodes' winners are found next, where sums are hidden
``circuits``               the parcels by which they are found
``split_choice``           which candidate wins a node, and which node is split next
``active_continuing``      the label holder's questions about the trees of an earlier model
``continuation``           what goes on with trees of an earlier attempt, or of an earlier model
``sums_counter``           how many sums are answered, and may be
``consistency``            whether an answer can be true
``commitment``             what a passive party commits to
``transcribed``            which messages are signed, and when
``decoys``                 split decisions that hide how many there are
``computations``           the arithmetic that both machines order
=========================  ====================================================================
"""
