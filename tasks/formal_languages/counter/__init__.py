"""Counter languages: an automaton with counters answers."""
