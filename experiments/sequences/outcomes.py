"""The outcome of a finished run: whether it solved its task, and the best simple baseline."""

from collections.abc import Mapping
from typing import Any


def is_solved(result: Mapping[str, Any]) -> bool:
    """Return whether all sequences in all test splits are correct."""
    return all(result[split]["sequence_accuracy"] == 1 for split in result["baselines"])


def best_baseline(
    result: Mapping[str, Any], split: str, measure: str = "sequence_accuracy"
) -> tuple[float, str]:
    """Return the best baseline's score on a test split, and the baseline's name."""
    scores = result["baselines"][split]
    name = max(scores, key=lambda one: scores[one][measure])
    return scores[name][measure], name
