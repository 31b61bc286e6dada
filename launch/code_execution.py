"""Code execution: read a program once, say what every `print` prints."""

import sys

from launch.sequence_command import command
from tasks import CodeExecution

main = command(CodeExecution, __doc__, example="--core delta_rnn --variables 5")

if __name__ == "__main__":
    sys.exit(main())
