"""The time of a token on a CPU, and of products, beside what the processor can do."""
