"""Rows of certificates, of other engines' rules, of audits, and of the microscope."""
