"""What is computed? Gradient-boosted trees over binned columns, in NumPy.

The numbers are those of XGBoost's ``hist``, node by node. In the order in which to read:

========================  ====================================================================
``params``                the training parameters, under XGBoost's names
``objectives``            labels, margins and gradients of each objective
``single_precision``      exponentials and logarithms of float32
``sampling``              rows and columns of a tree
``gradients``             the gradients of one tree, as integers, so that sums are exact
``binning``               cuts of a feature, the rows' bins, and sums of gradients by bin
``machine_sums``          the same sums of many rows in the processor's own instructions
``machine_bins``          bins of many values in the processor's own instructions
``machine_rows``          halves of a node in the processor's own instructions
``node_rows``             which rows stand in a node
``gain``                  what a split gains and a leaf weighs, over any kind of numbers
``splits``                candidates, their gains, constraints, the best one, leaves, and which
                          node is split next
``dart``                  which trees DART leaves out, and what each weighs
``metrics``               evaluation metrics
``callbacks``             early stopping, and a caller's own code between the rounds
``intercept``             by how much the predictions of some rows miss their labels
``model``                 a finished model: trees of records, and the owners' lookup tables
``row_parts``             a table in parts of rows, whose sums add up to those of the whole
``standard_columns``      columns of mean 0 and mean square 1, whose products are correlations
``correlated_columns``    how much columns of numbers are alike
``population_stability``  how far a column is from what it was, by counts of bins
``monotone_bins``         bins pooled until their weight of evidence is monotone
``screened_columns``      what columns are like, and how well each alone tells a binary label
``screened_label``        how well a column alone tells a label of several classes, or of numbers
``tail_probability``      p-values of chi-square and F
``xgboost_comparison``    trees with all lookup tables joined in, beside XGBoost's own
========================  ====================================================================
"""
