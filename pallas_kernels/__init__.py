"""Fused versions of `specjax` functions on logits.

Of `specjax` this package imports `types`, `probs` and `truncation`. `fuse.wire` returns
a verifier and a draw by kernels. `fuse.build` returns what they are made of: fused
versions of `probs.standardize`, `probs.draw` and a verifier's `verify`, which return
what the references return for the same noise. `dispatch` chooses the implementation by
device and shape, before anything is lowered: Mosaic GPU on Hopper and later, Mosaic
TPU, one-pass XLA on other GPUs, the reference on a CPU.
"""
