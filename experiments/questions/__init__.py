"""Open questions, a module for each: the question, the criterion that ends it, the
result.
"""
