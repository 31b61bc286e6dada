"""The remote actors of a run: started, asked for rollouts, and replaced when they die.

An actor that Ray cannot place yet waits, and joins when there are free resources. If an actor's
process, node or environment dies, its next incarnation replaces it and plays other games. The first
replacement is immediate; each further failure doubles the pause before the next one. Training
continues with the remaining actors, and ends if all of them fail.
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
from fastweights.host import Stages
from fastweights.training.ray.board import Offer
from fastweights.training.ray.worker import Timed
from fastweights.training.schedules.experience import SourceFailed

ASKED_AT_ONCE = 2  # rollouts per actor: the current one and the next, so that it is never idle
FAILURES_IN_A_ROW = 5  # of one actor; these end the run if no actor delivers in the meantime
PAUSE = 1.0  # seconds before the second replacement in a row; doubles for each further one
DOUBLINGS = 6  # at most
_NEWS = 60.0  # seconds without any actor before a note


class Delivery(NamedTuple):
    """A packed rollout (`training/ray/wire.py`) and its stage times."""

    member: "Member"
    packed: Any
    timed: Timed


class Member:
    """One place in the crew, and the actor that fills it."""

    def __init__(self, number: int) -> None:
        self.number, self.incarnation = number, -1
        self.handle: ActorHandle | None = None
        self.joining: ObjectRef | None = None
        self.asked: deque[list[ObjectRef]] = deque()
        self.failures = 0  # since its last rollout
        self.delivered_before = 0  # rollouts of all actors at the first of these failures
        self.due = 0.0  # time at which to fill an empty place; seconds, monotonic
        self.last_asked = 0.0
        self.stages = Stages(f"actor {number}")

    @property
    def is_there(self) -> bool:
        """Whether the actor can receive requests."""
        return self.handle is not None and self.joining is None

    @property
    def next(self) -> ObjectRef | None:
        """The reference that will be ready first."""
        return self.joining or (self.asked[0][0] if self.asked else None)


class Crew:
    """`size` remote actors, created by `start(number, incarnation)`; for use by one thread.

    `give_back(n)` is called if `n` requested rollouts will not arrive.
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
        """The stage times of each member's actors."""
        return [member.stages for member in self._members]

    @property
    def actors(self) -> int:
        """The current number of actors."""
        return sum(member.is_there for member in self._members)

    @property
    def failing(self) -> int:
        """The number of actors that have failed and not delivered a rollout since."""
        return sum(member.failures > 0 for member in self._members)

    def begin(self) -> None:
        """Request all actors from Ray."""
        self._alone_since = time.monotonic()
        self._fill_places()

    def who_is_free(self) -> Member | None:
        """Return the actor with the fewest requests; of several, the one asked least recently."""
        free = [m for m in self._members if m.is_there and len(m.asked) < ASKED_AT_ONCE]
        return min(free, key=lambda member: (len(member.asked), member.last_asked), default=None)

    def ask(self, member: Member, offer: Offer) -> None:
        """Ask a member for one rollout."""
        member.asked.append(member.handle.collect.options(num_returns=2).remote(offer))
        member.last_asked = time.monotonic()

    def deliveries(self, patience: float) -> Iterator[Delivery]:
        """Yield the rollouts that have arrived; wait up to `patience` seconds for the next.

        Yields at most one per actor, so that no actor is neglected when rollouts arrive faster than
        they are taken. Raises `SourceFailed`, and an environment's `BrokenEnvironment`.
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
                if isinstance(error.cause, BrokenEnvironment):  # another actor would fail, too
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
        """Record that the member delivered a valid rollout."""
        self._delivered += 1
        member.failures = 0

    def replace(self, member: Member, reason: str) -> None:
        """Remove a failed member's actor; `deliveries` fills the place after a pause.

        The actor's first requested rollout is lost; the others had not started. Raises
        `SourceFailed`.
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
                f"actor {member.number} failed {member.failures} times in a row without "
                f"delivering a rollout, most recently with {reason}"
            )
        pause = PAUSE * 2 ** min(member.failures - 2, DOUBLINGS) if member.failures > 1 else 0.0
        member.due = time.monotonic() + pause
        when = f" in {pause:g} s" if pause else ""
        print(f"note: replacing actor {member.number}{when}: {reason}", file=sys.stderr)

    def end(self) -> None:
        """Kill all actors, including those that Ray could not place."""
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
        """Return whether all have failed, and none has delivered since `member` first failed."""
        return self.failing == len(self._members) and self._delivered == member.delivered_before

    def _say_where_alone(self) -> None:
        """Print a note, once, if Ray has no resources for any actor."""
        if self.actors:
            self._alone_since = None
        elif self._alone_since and time.monotonic() - self._alone_since > _NEWS:
            self._alone_since = None
            print(
                "note: Ray has had no free resources for any actor yet; see `ray status`",
                file=sys.stderr,
            )


def in_one_line(error: RayError) -> str:
    """Return one line: the actor's own message, or Ray's reason for its death."""
    own = error.cause if isinstance(error, RayTaskError) else error
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(own)).strip()
    lines = [line.strip()[:250] for line in text.splitlines()] or [type(own).__name__]
    return " ... ".join(dict.fromkeys((lines[0], lines[-1])))
