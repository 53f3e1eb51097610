"""What a person reads: the terminal, verdict.json."""
