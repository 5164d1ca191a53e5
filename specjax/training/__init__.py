"""Training: a resumable loop, and what drafts learn from and how.

It is the one part of specjax that imports optax, the extra `train`; the command
`specjax train-draft` alone imports it.
"""
