"""What operations keep between calls, for tests that change what they found."""

from fastweights.kernels.registry import OPERATIONS


def forget_calls() -> None:
    """Every operation chooses and loads anew at its next call."""
    for operation in OPERATIONS.values():
        operation.prepared.clear()
        operation.signature._seen.clear()
