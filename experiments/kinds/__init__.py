"""Acceptance by kind of token, by its place and by its length."""
