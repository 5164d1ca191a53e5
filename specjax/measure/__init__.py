"""What measures a pair of models: who plays, on which texts, at what cost."""
