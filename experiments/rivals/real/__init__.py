"""Real weights, decoded by the engines that a user would pick; not installed."""
