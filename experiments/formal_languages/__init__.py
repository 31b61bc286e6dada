"""Formal languages: presets, the papers' figures, a search, a summary of all, and traces."""
