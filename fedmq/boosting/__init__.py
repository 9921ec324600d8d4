"""What is computed? Gradient-boosted trees over binned columns, in plain NumPy.

The numbers are those of XGBoost's ``hist``, node by node. In the order in which to read:

========================  ====================================================================
``params``                the training parameters, under XGBoost's names
``binning``               cuts of a feature, and the rows' bins
``objective_name``        which objectives there are, and which metrics fit them
``objectives``            labels, margins and gradients of each objective
``single_precision``      exponentials and logarithms of float32
``row_weights``           how often rows count, and where they start
``sampling``              rows and columns of a tree
``fixed_point``           gradients as integers, so that sums are exact
``gradients``             the gradients of one tree
``histogram``             sums of gradients per node, feature and bin
``candidates``            split candidates in their canonical order, and their left sums
``category_sets``         which sets of its categories a column may send right
``monotone``              which splits and leaves a monotone constraint allows
``interactions``          which columns may split a node below others
``column_mark``           what both say of the column of a split
``split``                 gain of a candidate, the best one, weight of a leaf
``driver``                which of the scored nodes are split next
``node_numbers``          how the nodes of a tree are numbered
``dart``                  which trees DART leaves out, and what each weighs
``standard_random``       the random numbers of C++'s standard library
``metrics``               evaluation metrics and early stopping
``population_stability``  how far a column is from what it was, by counts of bins
``callbacks``             a caller's own code between the rounds
``model``                 a finished model: trees of records, and the owners' lookup tables
``xgboost``               trees with all lookup tables joined in, beside XGBoost's own
========================  ====================================================================
"""
