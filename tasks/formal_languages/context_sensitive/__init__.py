"""Context-sensitive languages: no one stack is enough to answer."""
