"""Regular languages: a finite automaton answers."""
