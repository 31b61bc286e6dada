"""Formal languages: presets, the papers' figures, a search, a summary of all runs, and traces."""
