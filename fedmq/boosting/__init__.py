"""What is computed? Binning, objectives, histograms, split gain, trees and models in NumPy."""
