"""Recursive rejection of siblings that were drawn independently, so that two may agree.

Miao et al. (2024), https://arxiv.org/abs/2305.09781, Algorithm 2: every child of a node
is judged by the law that it carries, which several drafters may have given. See
`verifiers.recursive`.
"""

from specjax.verifiers import recursive

verifier = recursive.build(replaced=True)
