"""A lesson in eight pages that compute; the library itself computes what each page
shows.
"""
