"""A lesson in nine interactive pages; the library itself computes what each page
shows."""
