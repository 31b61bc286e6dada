"""Other questions to the same memories: sequences of words with answers.

A new task is one file and one line here.
"""

from fastweights.tasks.code_execution import CodeExecution
from fastweights.tasks.list_ops import ListOps
from fastweights.tasks.task import UNASKED, Sample, Statistic, Task

TASKS: dict[str, type[Task]] = {task.name: task for task in (CodeExecution, ListOps)}

__all__ = ["TASKS", "UNASKED", "CodeExecution", "ListOps", "Sample", "Statistic", "Task"]
