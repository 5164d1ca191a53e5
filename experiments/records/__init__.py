"""The records of measurements: their format, their origin, and how they are printed."""
