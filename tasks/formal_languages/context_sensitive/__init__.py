"""Context-sensitive languages, for which one stack is not enough."""
