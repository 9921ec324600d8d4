"""What survives a crash? Sessions, checkpoints, alignments and models on disk."""
