"""The tables of Chen et al. (2023): https://arxiv.org/abs/2302.01318."""
