"""Do parties together train XGBoost's model, whatever the table and the options? Seed by seed."""
