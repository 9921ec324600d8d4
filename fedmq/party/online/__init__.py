"""How is a score made while somebody waits? Scoring, answering, and the rows of both."""
