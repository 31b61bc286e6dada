"""Other questions to the same memories: sequences of words with answers.

A new task is one file and one line here; a new formal language, a line in `formal_languages`.
"""

from fastweights.tasks.code_execution import CodeExecution
from fastweights.tasks.formal_languages import LANGUAGES, Language
from fastweights.tasks.list_ops import ListOps
from fastweights.tasks.task import UNASKED, Sample, Statistic, Task

TASKS: dict[str, type[Task]] = {task.name: task for task in (CodeExecution, ListOps)} | LANGUAGES

__all__ = [
    "LANGUAGES",
    "TASKS",
    "UNASKED",
    "CodeExecution",
    "Language",
    "ListOps",
    "Sample",
    "Statistic",
    "Task",
]
