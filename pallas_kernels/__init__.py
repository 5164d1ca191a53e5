"""Fused twins of `specjax` functions on logits; they import jax alone.

`fuse.build` gives twins of `probs.standardize`, `probs.draw` and a verifier's `verify`
that return what their references return for the same noise. `dispatch` says which
implementation runs, by device and shape, before anything is lowered: Mosaic GPU on
Hopper and later, Mosaic TPU, one-pass XLA on other GPUs, the reference on a CPU.
"""
