"""Parts of a step on a chip, measured apart: memory, loops and graphs, kernels."""
