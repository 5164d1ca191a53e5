"""The tables and figures of Wagner et al. (2024)."""
