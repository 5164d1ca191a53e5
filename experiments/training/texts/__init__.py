"""The text that models are trained on, read from installed packages."""
