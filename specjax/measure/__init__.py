"""The measurements of a pair of models: acceptance, time and cost on given texts."""
