"""The tables and figures of Leviathan, Kalman & Matias (2023)."""
