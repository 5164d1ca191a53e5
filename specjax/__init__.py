"""Speculative decoding in JAX."""
