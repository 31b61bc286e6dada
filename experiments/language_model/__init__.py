"""Runs of language models: options, training, evaluation, text, export, and the paper's tables."""
