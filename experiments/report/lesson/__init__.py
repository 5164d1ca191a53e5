"""A lesson in nine pages that compute; the library itself computes what each page
shows.
"""
