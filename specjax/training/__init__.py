"""Training: a resumable loop, the data that drafts learn from, and their losses.

Its loop alone imports optax, the extra `train`; of specjax only the command
`specjax train-draft` imports this package.
"""
