"""What is minimised? Labels, first margins, gradients and predictions of each objective."""
