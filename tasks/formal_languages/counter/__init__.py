"""Counter languages, which an automaton with counters recognises."""
