"""Grids of runs (settings x core x seed), their tables and pictures; sequence tasks' runs."""
