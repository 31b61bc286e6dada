"""Language models' runs: options, training, evaluation, text, export, and the paper's tables."""
