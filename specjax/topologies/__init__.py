"""The shapes of drafted trees: the parents of the nodes in level order, one file each.

A file has a `build` that returns (number of nodes) -> parents, in the form that
`specjax.trees` and `drafters.tree` use.
"""
