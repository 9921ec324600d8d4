"""How does the model compare with XGBoost's? Export, and comparison node by node."""
