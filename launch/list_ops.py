"""Sequential ListOps: read a nested list of operations once, say its value.

    python launch/list_ops.py --preset small --core rdn     minutes on two cores
    python launch/list_ops.py --core delta_rnn --depth 15
    python launch/list_ops.py --resume runs/latest
    python launch/list_ops.py --table 2 --preset small      all models, three seeds
    python launch/list_ops.py --statistics                  what the sequences are like

Options start from a preset and are changed one by one; docs/tasks.md has more.
"""

import sys
from collections.abc import Sequence

from launch.failures import one_line_errors
from launch.sequence_command import command
from tasks import ListOps


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return command(ListOps, arguments, __doc__)


if __name__ == "__main__":
    sys.exit(main())
