"""Command lines: options, hints, tables on the terminal."""
