"""What does the owner allow, and what was allowed? Policy, quotas and the logs of both."""
