"""Training: a resumable loop, and what drafts learn from and how.

Its loop alone imports optax, the extra `train`; of specjax only the command
`specjax train-draft` imports this package.
"""
