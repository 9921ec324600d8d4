"""Was every answer of a party honest? An auditor replays it from what both sides kept."""
