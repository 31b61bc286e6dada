"""Runs of the sequence tasks, and the papers' tables."""
