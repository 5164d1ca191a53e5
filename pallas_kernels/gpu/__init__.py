"""Verification on GPUs, in two or three launches: Mosaic GPU on Hopper and later.

Triton runs the same launches where it is asked for (`--kernels triton`): on Ampere and
Ada GPUs, which Mosaic cannot compile for, and beside Mosaic as a comparator.
"""
