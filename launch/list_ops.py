"""Sequential ListOps: read a nested list of operations once, say its value."""

import sys
from pathlib import Path

if __name__ == "__main__":  # the code beside this file, whichever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from launch.waiting import sleep_while_waiting

    sleep_while_waiting()  # torch is not loaded yet

from launch.sequence_command import command
from tasks import ListOps

main = command(ListOps, __doc__, example="--core delta_rnn --depth 15")

if __name__ == "__main__":
    sys.exit(main())
