"""Verification on GPUs, in two or three launches: Mosaic GPU on Hopper and later.

Triton runs the same launches with `--kernels triton`: on Ampere and Ada GPUs, for which
Mosaic cannot compile, and next to Mosaic for comparison.
"""
