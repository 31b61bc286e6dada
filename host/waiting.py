"""How OpenMP's threads wait for each other; set before torch loads OpenMP, which reads it once.

An operation on several threads ends when the last thread is done. A waiting thread spins for a
while before it sleeps. GCC's OpenMP, which torch brings on Linux, spins 300,000 times, for some
milliseconds. If another program runs on the same processors, the spinning thread keeps the thread
that it waits for from running. `docs/shared_machines.md` has the cost, and the cost of sleeping on
an idle machine.
"""

import os

# The user's settings, any of them.
WAITING_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# LLVM's OpenMP, which torch brings on macOS, sleeps at once with these settings; GCC's spins 1,000
# times. On an idle machine, whole runs are then at least as fast as with 300,000. Beside another
# program they are nearly as fast as with threads that sleep at once (docs/results/shared_machine).
SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


def sleep_while_waiting() -> None:
    """Let the threads of this process, and of its children, spin briefly and then sleep.

    Changes nothing if the user has set one of `WAITING_VARIABLES`. Call it before torch is
    imported.
    """
    if not any(name in os.environ for name in WAITING_VARIABLES):
        os.environ.update(SETTINGS)
