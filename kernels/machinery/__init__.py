"""How a recurrence becomes an operation: builds, calls, dispatch, registration with torch."""
