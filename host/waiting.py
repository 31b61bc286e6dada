"""How OpenMP's threads wait for each other; set before torch loads OpenMP, which reads it once.

An operation on several threads ends when the last thread is done. A waiting thread spins for a
while before it sleeps. GCC's OpenMP, which torch includes on Linux, spins 300,000 times, which
takes some milliseconds. If another program runs on the same processors, a spinning thread prevents
the thread that it waits for from running. `docs/shared_machines.md` has the cost, and the cost of
sleeping on an idle machine.
"""

import os

# Variables by which the user may have set this.
WAITING_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# With these settings, LLVM's OpenMP, which torch includes on macOS, sleeps at once, and GCC's spins
# 1,000 times. On an idle machine, whole runs are then at least as fast as with 300,000. Beside
# another program they are nearly as fast as with threads that sleep immediately
# (docs/results/shared_machine).
SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


def sleep_while_waiting() -> None:
    """Let the threads of this process and its children spin briefly and then sleep.

    Changes nothing if the user has set one of `WAITING_VARIABLES`. Call it before torch is
    imported.
    """
    if not any(name in os.environ for name in WAITING_VARIABLES):
        os.environ.update(SETTINGS)
