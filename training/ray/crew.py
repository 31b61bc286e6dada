"""The remote actors of a run: started, asked for rollouts, and replaced where they die.

An actor that Ray cannot place yet waits, and joins when there is room; one whose process, node or
environment dies is replaced by its next incarnation, which plays other games: at once, and after a
pause that doubles where it fails again. Training goes on with those there are, and ends where all
fail.
"""

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from fastweights.envs import BrokenEnvironment
from fastweights.host.stages import Stages
from fastweights.training.ray.board import Offer
from fastweights.training.ray.worker import Timed
from fastweights.training.schedules.experience import SourceFailed

ASKED_AT_ONCE = 2  # rollouts: the one that is being collected, and the next, so that none idles
FAILURES_IN_A_ROW = 5  # of one, that end the run where nobody delivers meanwhile
PAUSE = 1.0  # seconds before the second replacement in a row; before each further one twice as long
DOUBLINGS = 6  # at most
_NEWS = 60.0  # seconds without an actor, after which that is said


class Delivery(NamedTuple):
    """A rollout as it travels (`training/ray/wire.py`), and what it took."""

    member: "Member"
    packed: Any
    timed: Timed


class Member:
    """One place in the crew, and who fills it."""

    def __init__(self, number: int) -> None:
        self.number, self.incarnation = number, -1
        self.handle: ActorHandle | None = None
        self.joining: ObjectRef | None = None
        self.asked: deque[list[ObjectRef]] = deque()
        self.failures = 0  # since its last rollout
        self.delivered_before = 0  # rollouts from anybody, at the first of these failures
        self.due = 0.0  # when an empty place is to be filled; seconds, monotonic
        self.last_asked = 0.0
        self.stages = Stages(f"actor {number}")

    @property
    def is_there(self) -> bool:
        """Whether it can be asked."""
        return self.handle is not None and self.joining is None

    @property
    def next(self) -> ObjectRef | None:
        """What will be ready first."""
        return self.joining or (self.asked[0][0] if self.asked else None)


class Crew:
    """`size` remote actors that `start(number, incarnation)` makes; for one thread.

    `give_back(n)` is told of `n` rollouts that were asked for and will not come.
    """

    def __init__(
        self,
        start: Callable[[int, int], ActorHandle],
        size: int,
        give_back: Callable[[int], None],
    ) -> None:
        self._start, self._give_back = start, give_back
        self._members = [Member(number) for number in range(size)]
        self.restarts = self.lost = self._delivered = 0
        self._alone_since: float | None = None

    @property
    def stages(self) -> Sequence[Stages]:
        """The actors' own times, a member each."""
        return [member.stages for member in self._members]

    @property
    def actors(self) -> int:
        """How many there are now."""
        return sum(member.is_there for member in self._members)

    @property
    def failing(self) -> int:
        """How many have failed, and delivered nothing since."""
        return sum(member.failures > 0 for member in self._members)

    def begin(self) -> None:
        """Asks Ray for everyone."""
        self._alone_since = time.monotonic()
        self._fill_places()

    def who_is_free(self) -> Member | None:
        """The actor that has least to do, and of several the one that was asked longest ago."""
        free = [m for m in self._members if m.is_there and len(m.asked) < ASKED_AT_ONCE]
        return min(free, key=lambda member: (len(member.asked), member.last_asked), default=None)

    def ask(self, member: Member, offer: Offer) -> None:
        """For one rollout."""
        member.asked.append(member.handle.collect.options(num_returns=2).remote(offer))
        member.last_asked = time.monotonic()

    def deliveries(self, patience: float) -> Iterator[Delivery]:
        """Rollouts that have come; waits `patience` seconds for the next one, if need be.

        Of each actor at most one, so that none is passed over where they come faster than they are
        taken. Raises `SourceFailed`, and an environment's `BrokenEnvironment`.
        """
        self._fill_places()
        awaited = {member.next: member for member in self._members if member.next}
        if not awaited:
            time.sleep(patience)
            return
        ray.wait(list(awaited), timeout=patience)
        ready, _ = ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
        for reference in ready:
            member = awaited[reference]
            try:
                if member.joining:
                    ray.get(reference)
                    member.joining = None
                    continue
                packed, timed = ray.get(member.asked[0])
            except RayTaskError as error:
                if isinstance(
                    error.cause, BrokenEnvironment
                ):  # another actor's game would be no better
                    raise error.cause from None
                self.replace(member, in_one_line(error))
                continue
            except RayError as error:
                self.replace(member, in_one_line(error))
                continue
            member.asked.popleft()
            yield Delivery(member, packed, timed)
        self._say_where_alone()

    def has_delivered(self, member: Member) -> None:
        """Notes that what came from it was a rollout."""
        self._delivered += 1
        member.failures = 0

    def replace(self, member: Member, reason: str) -> None:
        """Empties the place of one that has failed; `deliveries` fills it, after a pause.

        Its first rollout is lost, others had not begun. Raises `SourceFailed`.
        """
        if member.failures == 0:
            member.delivered_before = self._delivered
        member.failures += 1
        self.restarts += 1
        self.lost += bool(member.asked)
        self._give_back(len(member.asked))
        member.asked.clear()
        ray.kill(member.handle)
        member.handle = member.joining = None
        if member.failures >= FAILURES_IN_A_ROW and self._all_fail_like(member):
            raise SourceFailed(
                f"actor {member.number} failed {member.failures} times in a row without a "
                f"rollout, the last time with {reason}"
            )
        pause = PAUSE * 2 ** min(member.failures - 2, DOUBLINGS) if member.failures > 1 else 0.0
        member.due = time.monotonic() + pause
        when = f" in {pause:g} s" if pause else ""
        print(f"note: actor {member.number} is replaced{when}: {reason}", file=sys.stderr)

    def end(self) -> None:
        """Kills everyone, those that Ray could not place included."""
        for member in self._members:
            if member.handle is not None:
                ray.kill(member.handle)

    def _fill_places(self) -> None:
        for member in self._members:
            if member.handle is None and time.monotonic() >= member.due:
                member.incarnation += 1
                member.handle = self._start(member.number, member.incarnation)
                member.joining = member.handle.join.remote()

    def _all_fail_like(self, member: Member) -> bool:
        """Whether everybody has failed, and nobody delivered since `member` first did."""
        return self.failing == len(self._members) and self._delivered == member.delivered_before

    def _say_where_alone(self) -> None:
        """Once, where Ray has no room for any actor."""
        if self.actors:
            self._alone_since = None
        elif self._alone_since and time.monotonic() - self._alone_since > _NEWS:
            self._alone_since = None
            print(
                "note: Ray has had no room for any actor yet; `ray status` says what is free",
                file=sys.stderr,
            )


def in_one_line(error: RayError) -> str:
    """One line: an actor's own words, or what Ray knows of its end."""
    own = error.cause if isinstance(error, RayTaskError) else error
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(own)).strip()
    lines = [line.strip()[:250] for line in text.splitlines()] or [type(own).__name__]
    return " ... ".join(dict.fromkeys((lines[0], lines[-1])))
