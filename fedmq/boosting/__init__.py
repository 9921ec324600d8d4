"""What is computed? Gradient-boosted trees over binned columns, in plain NumPy.

The numbers are those of XGBoost 3.2's ``hist``, node by node. Reading order:

========================  ====================================================================
``params``                the training parameters, under XGBoost's names
``features``              a table's columns as float32, NaN for missing
``binning``               cuts of a feature, and the rows' bins
``objective``             labels, margins and gradients of an objective
``fixed_point``           gradients as integers, so that sums are exact
``gradients``             the gradients of one tree
``histogram``             sums of gradients per node, feature and bin
``candidates``            split candidates in their canonical order, and their left sums
``split``                 gain of a candidate, the best one, weight of a leaf
``sampling``              rows and columns of a tree
``tree``                  a tree of (owner, record) nodes, and the lookup tables behind them
``model``                 the share of a finished model that each owner keeps
``metric``                evaluation metrics and early stopping
``joined_tree``           a tree with its lookup tables joined into it
``xgboost_export``        joined trees as an ``xgboost.Booster``
``xgboost_parity``        joined trees compared with XGBoost's, node by node
``numpy_field``           NumPy vectors as fields of the JSON documents above
========================  ====================================================================
"""
