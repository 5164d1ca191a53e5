"""The rows of the certificate, of other engines' rules, of audits and of the
microscope.
"""
