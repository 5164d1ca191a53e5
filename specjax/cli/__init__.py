"""What a person runs: the commands, and what they choose before they run."""
