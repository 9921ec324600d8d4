"""Who runs it? Daemon, configuration, data sources, local store, compute pool."""
