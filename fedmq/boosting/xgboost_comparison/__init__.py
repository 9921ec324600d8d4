"""How is the model compared with XGBoost's, and exported to it? Both take all parties' shares."""
