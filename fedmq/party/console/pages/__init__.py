"""What does each page of the console show? One file a page, with a template of the same name."""
