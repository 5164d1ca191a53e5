"""Calls that drafts save a beam search, by its width."""
