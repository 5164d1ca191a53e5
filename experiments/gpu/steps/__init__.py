"""The parts of a step on a chip, measured separately: memory, loops and graphs,
kernels.
"""
