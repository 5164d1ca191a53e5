"""Fused verification beside its competitors, on a GPU."""
