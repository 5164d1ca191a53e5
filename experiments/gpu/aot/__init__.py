"""Compilation for accelerators that are not present: the launches and the traffic of
programs.

Nothing in `specjax` or `pallas_kernels` may import this room. Its wheels are the extra
`aot`; `compilers.missing_reason` says which of them are missing.
"""
