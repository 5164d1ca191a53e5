"""Acceptance by the kind of a token, by its place and by its length."""
