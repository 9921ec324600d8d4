"""Where a party's table lies: one kind of source a file, behind one small interface."""
