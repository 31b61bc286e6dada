"""Schedules: how acting and learning share time and devices."""
