"""Recursive rejection of siblings that were drawn independently, so that two may agree.

Miao et al. (2024), https://arxiv.org/abs/2305.09781, Algorithm 2. Every child is judged
by the law that it carries, and these laws may come from several drafters. See
`verifiers.recursive`.
"""

from specjax.verifiers import recursive

verifier = recursive.build(with_replacement=True)
