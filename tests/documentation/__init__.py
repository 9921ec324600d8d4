"""What pages show to be typed, written or run is typed, written and run."""
