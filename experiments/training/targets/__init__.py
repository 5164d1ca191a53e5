"""The bundled targets: what they learn from, and how they grow."""
