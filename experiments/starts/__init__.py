"""The seconds from a command to its first text, cold and warm."""
