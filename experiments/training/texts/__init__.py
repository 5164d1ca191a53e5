"""Text that models are trained on, read from what is installed."""
