"""A check that an edit did not slow decoding down: one pair is timed beside an earlier
commit.
"""
