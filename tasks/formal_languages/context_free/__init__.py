"""Deterministic context-free languages, which an automaton with a stack recognises."""
