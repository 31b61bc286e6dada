"""Reset what operations remember between calls."""

from fastweights.kernels.registry import OPERATIONS


def forget_calls() -> None:
    """Let every operation choose and load its backend again at its next call."""
    for operation in OPERATIONS.values():
        operation.prepared.clear()
        operation.signature._seen.clear()
