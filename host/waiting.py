"""How OpenMP's threads wait for each other: set before torch loads OpenMP, which reads it once.

Every operation on several threads ends when the last of them is done, and a thread that waits spins
for a while before it sleeps. GCC's OpenMP, which torch brings on Linux, spins 300,000 times, some
milliseconds. Where another program runs on the same processors, the spinning thread keeps the one
that it waits for from running: `docs/shared_machines.md` has what that costs, and what sleeping
costs on an idle machine.
"""

import os

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # the user's, each enough
# OpenMP's own word: both GCC's and LLVM's, which torch brings on macOS, then sleep at once.
SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE"}


def sleep_while_waiting() -> None:
    """Has the threads of this process, and of those that it starts, sleep while they wait.

    Changes nothing where the user has chosen. To be called before torch is imported.
    """
    if not any(name in os.environ for name in CHOICES):
        os.environ.update(SETTINGS)
