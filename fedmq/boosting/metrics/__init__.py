"""How good is a model so far? XGBoost's evaluation metrics, and when they end a training early."""
