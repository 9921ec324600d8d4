"""How is counted whom all parties share, without a list for anybody? One machine per side."""
