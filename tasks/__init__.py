"""Supervised tasks for the same memories: token sequences with target answers.

To add a task, write its file and list it here; for a formal language, see `formal_languages`.
"""

from fastweights.tasks.baselines import baseline_accuracies
from fastweights.tasks.code_execution import CodeExecution
from fastweights.tasks.formal_languages import LANGUAGES, Language
from fastweights.tasks.list_ops import ListOps
from fastweights.tasks.sequence_model import ModelConfig, SequenceModel
from fastweights.tasks.sequences import Sequences, draw_splits, split_sizes
from fastweights.tasks.task import UNASKED, Sample, Statistic, Task
from fastweights.tasks.train import (
    SCORED_AT_ONCE,
    Result,
    SequenceScores,
    Trainer,
    TrainerConfig,
    score_sequences,
)

TASKS: dict[str, type[Task]] = {task.name: task for task in (CodeExecution, ListOps)} | LANGUAGES

__all__ = [
    "LANGUAGES",
    "SCORED_AT_ONCE",
    "TASKS",
    "UNASKED",
    "CodeExecution",
    "Language",
    "ListOps",
    "ModelConfig",
    "Result",
    "Sample",
    "SequenceModel",
    "SequenceScores",
    "Sequences",
    "Statistic",
    "Task",
    "Trainer",
    "TrainerConfig",
    "baseline_accuracies",
    "draw_splits",
    "score_sequences",
    "split_sizes",
]
