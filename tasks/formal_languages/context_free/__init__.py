"""Deterministic context-free languages: an automaton with a stack answers."""
