"""What a party keeps on disk while its sessions run."""
