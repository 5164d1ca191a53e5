"""Fused `specjax` functions on logits; of `specjax` they import `types` and `probs`.

`fuse.wire` gives a verifier and a draw by kernels; `fuse.build` what they are made
of: `probs.standardize`, `probs.draw` and a verifier's `verify`, fused, which return
what their references return for the same noise. `dispatch` says which
implementation runs, by device and shape, before anything is lowered: Mosaic GPU on
Hopper and later, Mosaic TPU, one-pass XLA on other GPUs, the reference on a CPU.
"""
