"""Runs of agents, and grids of them: suites, the ablation and the T-maze, with their tables."""
