"""Commands: what people type, and their command lines."""
