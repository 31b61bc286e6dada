"""Regular languages, which a finite automaton recognises."""
