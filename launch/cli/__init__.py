"""Command lines: options, hints and tables on the terminal."""
