"""How is each kind of source read? One kind a file, in batches."""
