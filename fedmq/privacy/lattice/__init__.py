"""How are gradients summed on a lattice? Ring learning with errors, with a hint sent once."""
