"""Open questions, a module for each: the question, the criterion that decides it, the
result.
"""
