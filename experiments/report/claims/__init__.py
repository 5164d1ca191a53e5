"""The claims of papers on speculative decoding, each judged from the records here."""
