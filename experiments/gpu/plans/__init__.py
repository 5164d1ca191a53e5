"""Predictions of the memory and the time that pairs take on devices that are not
present.

`forms` has closed forms of sizes; `compiled` gets the same step from the vendors'
compilers (`experiments.gpu.aot`), and `fits` compares them.
"""
