"""A server under load, simulated and measured."""
