"""Whether an edit slowed decoding down: one pair, beside an earlier commit."""
