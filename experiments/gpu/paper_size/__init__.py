"""Rows of Table 4 at the paper's sizes, on one accelerator."""
