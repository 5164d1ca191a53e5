"""What papers claim of speculative decoding, each judged from the records here."""
