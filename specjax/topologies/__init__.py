"""Which tree to draft: the parents of its nodes in levels, one file each.

A file has a `build` that returns (number of nodes) -> parents, as `specjax.trees` and
`drafters.tree` have them.
"""
