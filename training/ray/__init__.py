"""Actors in processes of their own, on this machine or many: `--engine ray`, docs/clusters.md."""
