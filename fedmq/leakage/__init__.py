"""What could a party have learnt? The known attacks, mounted on a recorded training."""
