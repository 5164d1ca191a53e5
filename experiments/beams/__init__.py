"""Beam search with drafts: the calls of the target that they save, by width."""
