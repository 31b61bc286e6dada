"""Runs of agents, and grids of such runs: suites, the ablation and the T-maze, with tables."""
