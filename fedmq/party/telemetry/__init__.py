"""What is counted and timed? Counters, spans and timelines; other rooms show them."""
