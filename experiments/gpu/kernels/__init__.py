"""Fused verification compared with other implementations, on a GPU."""
