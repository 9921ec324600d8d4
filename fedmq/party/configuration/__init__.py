"""The files that people write: federation, party and job, as TOML."""
