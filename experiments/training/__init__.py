"""Trains the bundled models, the paper's pair, and fine-tunes T5."""
