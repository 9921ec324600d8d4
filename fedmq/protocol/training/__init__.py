"""How is a model trained? One machine per side (SecureBoost, Algorithms 1 and 2).

===================  ==================================================================="""
