"""How OpenMP's threads wait for each other: set before torch loads OpenMP, which reads it once.

Every operation on several threads ends when the last of them is done, and a thread that waits spins
for a while before it sleeps. GCC's OpenMP, which torch brings on Linux, spins 300,000 times, some
milliseconds. Where another program runs on the same processors, the spinning thread keeps the one
that it waits for from running: `docs/shared_machines.md` has what that costs, and what sleeping
costs on an idle machine.
"""

import os

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # the user's, each enough
# LLVM's OpenMP, which torch brings on macOS, sleeps at once. GCC's spins 1,000 times: on an idle
# machine, whole runs are then as fast as with 300,000 or faster, and beside another program nearly
# as fast as with threads that sleep at once (docs/results/shared_machine).
SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


def sleep_while_waiting() -> None:
    """Let the threads of this process, and of those that it starts, spin briefly and then sleep.

    Changes nothing where the user has chosen. To be called before torch is imported.
    """
    if not any(name in os.environ for name in CHOICES):
        os.environ.update(SETTINGS)
