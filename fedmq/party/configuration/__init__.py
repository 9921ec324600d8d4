"""What do people write down? The federation, the party and the job, as TOML."""
