"""Where fused kernels go: twins of `specjax` functions, of the same name and signature.

None is here yet. A kernel replaces one function, `Verifier.verify` first, must return
the very tokens that its reference returns for the same noise, and imports jax alone.
Until then the references in `specjax` are what runs, on every device.
"""
