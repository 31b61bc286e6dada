"""Turns recurrences into operations: builds, calls, dispatch and registration with torch."""
