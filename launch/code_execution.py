"""Train a memory on code execution: read a program once and predict its output."""

import sys
from pathlib import Path

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host import run_command

    sys.path.pop(0)  # the folders beside the package are not packages
    sys.exit(run_command(Path(__file__).stem))

from fastweights.launch.cli.sequence_command import command
from fastweights.tasks import CodeExecution

main = command(CodeExecution, __doc__, example="--core delta_rnn --variables 5")
