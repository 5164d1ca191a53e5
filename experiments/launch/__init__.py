"""Starts jobs on clusters, and measures what it costs to give work away."""
