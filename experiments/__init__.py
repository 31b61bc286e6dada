"""Runs of agents and sequence tasks, and grids of them with their tables and pictures."""
