"""The measurements of papers: a folder for each paper, a module for each kind of
measurement.
"""
