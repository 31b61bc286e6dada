"""Actors without torch, which start at once, for tests of failing actors."""

import os
import sys
import time
from types import ModuleType

from fastweights.envs.interface import BrokenEnvironment


class StandIn:
    """Delivers (number, incarnation, count of deliveries); its first incarnation fails as told.

    With `once`, it dies as soon as this file exists.
    """

    def __init__(self, number, incarnation, fails="", once=None):
        self.who, self.fails, self.made, self.once = (number, incarnation), fails, 0, once

    def join(self):
        if self.fails == "always":
            raise RuntimeError("no such game\nat all")

    def collect(self, offer):
        first = self.who[1] == 0
        if first and self.made == 1 and self.fails == "dies":
            while not self.once.exists():
                time.sleep(0.02)
            os._exit(1)
        if first and self.made == 1 and self.fails == "raises":
            raise RuntimeError("broken")
        if first and self.made == 1 and self.fails == "bad answer":
            raise BrokenEnvironment("Game-v0, environment 0: the reward is nan")
        if first and self.made == 1 and self.fails == "is newer":
            return _of_another_version(), {}
        self.made += 1
        return b"%d %d %d" % (*self.who, self.made - 1), {"emulation": (0.5, 3)}


def _of_another_version():
    """Return an object of a module that only this process has."""
    newer = sys.modules["newer"] = ModuleType("newer")
    exec("class Rollout: pass", newer.__dict__)
    return newer.Rollout()


class Repeats:
    """Delivers the given deliveries, and repeats the last of them forever."""

    def __init__(self, deliveries):
        self.deliveries = deliveries

    def join(self):
        pass

    def collect(self, offer):
        return self.deliveries.pop(0) if len(self.deliveries) > 1 else self.deliveries[0]
