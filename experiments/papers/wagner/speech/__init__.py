"""Speculative decoding of Whisper: word errors by verifier, and speed by batch (Wagner
et al., 2024, Tables 1, 2, 4, 6 and 8 in kind).
"""
