"""Which pair fits where, and what a step takes there, told before there is a chip.

`forms` has closed forms of sizes; `compiled` asks the vendors' compilers
(`experiments.gpu.aot`) what the same step takes, and `fits` lays them side by side.
"""
