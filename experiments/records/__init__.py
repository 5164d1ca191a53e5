"""Records of measurements: what they are, what made them, how they are printed."""
