"""Compiling for accelerators that are not there: what a program launches and moves.

Nothing in `specjax` or `pallas_kernels` may import this room. Its wheels are the extra
`aot`; `compilers.missing` says which of them are.
"""
