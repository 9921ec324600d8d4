"""How is a score made while somebody waits? Requests, scores, answers, and the rows of both."""
