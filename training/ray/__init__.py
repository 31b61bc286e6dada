"""Actors in separate processes, on this machine or many: `--engine ray`, docs/clusters.md."""
