"""How is a model trained? One machine per side (SecureBoost, Algorithms 1 and 2).

=========================  ====================================================================
``active``                 what the label holder does: it asks, compares and splits
``active_contests``        how it finds winners where sums are hidden
``active_opening``         how it opens the training
``passive``                what a passive party does: it sums, answers and keeps its thresholds
``passive_opening``        how it takes up the training, or refuses
``states``                 which message is legal in which state, for both
``handshake``              who takes part, and from which tree on
``prepared``               what a passive party has from the setup to the end
``tables``                 the tables that a training begins with
``category_columns``       which columns hold categories, and which of them are split by sets
``earlier_attempts``       what a crash leaves to the next attempt
``model_builder``          the trees and margins so far
``fold_models``            those of each fold of a cross-validation
``round``                  margins of a round of one tree for each class
``dart_round``             rounds that leave trees out and weigh them
``tree_builder``           rows of each node, as the label holder sees them
``growing_tree``           the tree that grows, as a passive party sees it
``node_rows``              rows of each node, as a passive party sees them
``level``                  what is asked of the nodes of a level, and what is missing
``own_candidates``         the label holder's own candidates and their gains
``answers``                gains from what another party answered
``contests``               which nodes' winners are found next, where sums are hidden
``circuits``               the parcels by which they are found
``handed_on``              what one passive party of several hands on to the next then
``split_choice``           which candidate wins a node, and which node is split next
``asked_nodes``            whether the nodes of all questions belong to one tree
``histogram_requests``     which sums were asked for
``shown_candidates``       which candidates an owner shows, and in which order
``node_candidates``        the candidates of one node
``candidate_order``        the order that hides which candidate is which
``merged_cells``           candidates that ``smallest_cell`` merges
``active_continuing``      the label holder's questions about the trees of an earlier model
``passive_continuing``     the answers
``continuation``           may a training continue a model?
``column_marks``           what an owner shows of the columns of its candidates
``candidate_signs``        monotone constraints: the sign of each candidate
``candidate_constraints``  interaction constraints: those that hold the column of each candidate
``candidate_categories``   sets of categories: which candidates are of one column
``column_constraints``     what parameters ask of each party's columns
``sums_counter``           how many sums are answered, and may be
``consistency``            whether an answer can be true
``commitment``             what a passive party commits to
``transcribed``            which messages are signed, and when
``decoys``                 split decisions that hide how many there are
``computations``           the arithmetic that both machines order
=========================  ====================================================================
"""
