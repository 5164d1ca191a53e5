"""Proofs and tests that speculative decoding keeps the distribution of the target."""
