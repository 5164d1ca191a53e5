"""The commands that a person runs, and the settings that each one reads."""
