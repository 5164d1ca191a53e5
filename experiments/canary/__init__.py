"""A check that an edit did not slow decoding down: one pair is timed at two commits by
turns.
"""
