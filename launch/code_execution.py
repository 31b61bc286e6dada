"""Code execution: read a program once, say what every `print` prints.

    python launch/code_execution.py --preset small --core rdn     minutes on two cores
    python launch/code_execution.py --core delta_rnn --variables 5
    python launch/code_execution.py --resume runs/latest
    python launch/code_execution.py --table 2 --preset small      all models, three seeds
    python launch/code_execution.py --statistics                  what the sequences are like

Options start from a preset and are changed one by one; docs/tasks.md has more.
"""

import sys
from collections.abc import Sequence

from launch.failures import one_line_errors
from launch.sequence_command import command
from tasks import CodeExecution


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return command(CodeExecution, arguments, __doc__)


if __name__ == "__main__":
    sys.exit(main())
