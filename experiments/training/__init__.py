"""The training of the bundled models and of the paper's pair, and the fine-tuning of
T5.
"""
