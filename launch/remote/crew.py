"""The remote actors of a run: started, asked for rollouts, and replaced where they die.

An actor that Ray cannot place yet waits, and joins when there is room; one whose process, node or
environment dies is replaced by its next incarnation, which plays other games. Training goes on with
those there are.
"""

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from launch.experience import SourceFailed
from launch.remote.board import Offer
from launch.remote.worker import Timed
from launch.stages import Stages

ASKED_AT_ONCE = 2  # rollouts: the one that is being collected, and the next, so that none idles
FAILURES_IN_A_ROW = 5  # without a rollout in between, that end the run
_NEWS = 60.0  # seconds without an actor, after which that is said


class Delivery(NamedTuple):
    """A rollout's message, and what it took."""

    member: "Member"
    message: bytes
    timed: Timed


class Member:
    """One place in the crew, and who fills it."""

    def __init__(self, number: int) -> None:
        self.number, self.incarnation = number, -1
        self.handle: ActorHandle | None = None
        self.joining: ObjectRef | None = None
        self.asked: deque[list[ObjectRef]] = deque()
        self.failures = 0  # since its last rollout
        self.last_asked = 0.0
        self.stages = Stages(f"actor {number}")

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
        self.restarts = self.lost = 0
        self._alone_since: float | None = None

    @property
    def stages(self) -> Sequence[Stages]:
        """The actors' own times, a member each."""
        return [member.stages for member in self._members]

    @property
    def actors(self) -> int:
        """How many there are now."""
        return sum(member.handle is not None and member.joining is None for member in self._members)

    @property
    def failing(self) -> int:
        """How many have failed, and delivered nothing since."""
        return sum(member.failures > 0 for member in self._members)

    def begin(self) -> None:
        """Asks Ray for everyone."""
        self._alone_since = time.monotonic()
        for member in self._members:
            self._fill(member)

    def who_is_free(self) -> Member | None:
        """The actor that has least to do, and of several the one that was asked longest ago."""
        free = [m for m in self._members if not m.joining and len(m.asked) < ASKED_AT_ONCE]
        return min(free, key=lambda member: (len(member.asked), member.last_asked), default=None)

    def ask(self, member: Member, offer: Offer) -> None:
        """For one rollout."""
        member.asked.append(member.handle.collect.options(num_returns=2).remote(offer))
        member.last_asked = time.monotonic()

    def deliveries(self, patience: float) -> Iterator[Delivery]:
        """Rollouts that have come; waits `patience` seconds for the next one, if need be.

        Of each actor at most one, so that none is passed over where they come faster than they are
        taken. Raises `SourceFailed`.
        """
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
                message, timed = ray.get(member.asked[0])
            except RayError as error:
                self.replace(member, in_one_line(error))
                continue
            member.asked.popleft()
            yield Delivery(member, message, timed)
        self._say_where_alone()

    def replace(self, member: Member, reason: str) -> None:
        """Fills the place of one that has failed; its first rollout is lost, others had not begun.

        Raises `SourceFailed`.
        """
        member.failures += 1
        self.restarts += 1
        self.lost += bool(member.asked)
        self._give_back(len(member.asked))
        member.asked.clear()
        ray.kill(member.handle)
        if member.failures == FAILURES_IN_A_ROW:
            raise SourceFailed(
                f"actor {member.number} failed {FAILURES_IN_A_ROW} times in a row without a "
                f"rollout, the last time with {reason}"
            )
        print(f"note: actor {member.number} is replaced: {reason}", file=sys.stderr)
        self._fill(member)

    def end(self) -> None:
        """Kills everyone, those that Ray could not place included."""
        for member in self._members:
            if member.handle is not None:
                ray.kill(member.handle)

    def _fill(self, member: Member) -> None:
        member.incarnation += 1
        member.handle = self._start(member.number, member.incarnation)
        member.joining = member.handle.join.remote()

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
