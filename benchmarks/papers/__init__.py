"""The experiments of SecureBoost (1901.08755) and FedXGBoost (2106.10662), run again."""
