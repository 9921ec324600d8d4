"""What deploy/ holds: the Helm chart, alerts and the dashboard."""
