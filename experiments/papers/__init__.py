"""What the papers measure: a folder a paper, a module a kind of measurement."""
