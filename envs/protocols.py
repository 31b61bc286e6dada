"""How Atari is played: what varies between papers, as one value with a name.

- Mnih et al. 2015, Human-level control through deep reinforcement learning (Nature 518).
- Hausknecht and Stone 2015, Deep Recurrent Q-Learning for Partially Observable MDPs
  (arXiv:1507.06527).
- Machado et al. 2018, Revisiting the Arcade Learning Environment (JAIR 61).

Common to all: 84x84 grey pictures, maximum over the last two of four frames, stack of four
(Mnih et al. 2015, Methods).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

from fastweights.host.names import did_you_mean

HALF_AN_HOUR = 108_000  # emulator frames at 60 Hz (Machado et al. 2018)

# ale-py takes C ints; beyond these a game is no longer played, or does not fit into memory.
_RANGES = {
    "frame_skip": range(1, 1001),
    "frame_stack": range(1, 257),
    "noop_max": range(108_001),
    "max_frames": range(1, 2**31),
}


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Everything about playing Atari that a score depends on."""

    frame_skip: int = 4  # emulator frames an agent step, one action for all (Mnih et al. 2015)
    max_pool: bool = True  # maximum over the step's last two frames (Mnih et al. 2015)
    frame_stack: int = 4  # pictures an observation, oldest first (Mnih et al. 2015)
    # Probability, each emulator frame, that the previous action is repeated instead
    # (Machado et al. 2018: 0.25).
    sticky: float = 0.0
    # Probability, each agent step, that the newest picture of the observation is blank (all zero),
    # and stays so while it is in the stack (Hausknecht and Stone 2015: 0.5, with single pictures).
    flicker: float = 0.0
    # A game starts after `draw` emulator frames without a decision, draw uniform in
    # 0 .. noop_max - 1 (ale-py's convention; Mnih et al. 2015: up to 30). 0 for none.
    noop_max: int = 30
    # FIRE is the first of those frames in games that have the button, or some would never start.
    # At a game's reset only: after a lost life it is for the agent to press it.
    fire_at_reset: bool = True
    full_action_set: bool = False  # all 18 actions (Machado et al. 2018), or the game's own
    # A lost life ends an episode for the learner (memory reset, zero bootstrap), and the game
    # goes on (Mnih et al. 2015; Machado et al. 2018 advise against).
    life_signal: bool = True
    # Emulator frames after which a game is cut off, those before the first decision not counted.
    # None: never.
    max_frames: int | None = HALF_AN_HOUR
    score: Literal["game", "life"] = "game"  # what a reported score is the return of

    def __post_init__(self):
        if not (isinstance(self.sticky, int | float) and 0.0 <= self.sticky < 1.0):
            raise ValueError(f"sticky is a probability below 1, got {self.sticky!r}")
        if type(self.flicker) not in (int, float) or not 0.0 <= self.flicker <= 1.0:
            raise ValueError(f"flicker is a probability from 0 to 1, got {self.flicker!r}")
        for field, allowed in _RANGES.items():
            value = getattr(self, field)
            if type(value) is not int and (field, value) != ("max_frames", None):
                raise ValueError(f"{field} must be a whole number, got {value!r}")
            if value is not None and value not in allowed:
                raise ValueError(
                    f"{field} must be at least {allowed[0]} and at most {allowed[-1]}, got {value}"
                )
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool) and not isinstance(value, bool):
                raise ValueError(f"{field.name} must be true or false, got {value!r}")
        if self.score not in ("game", "life"):
            raise ValueError(f"score must be 'game' or 'life', got {self.score!r}")

    def override(self, options: Mapping[str, object]) -> "Protocol":
        """The same protocol with some fields changed; `ValueError` for a field it has not."""
        known = [field.name for field in fields(self)]
        if unknown := sorted(set(options) - set(known)):
            raise ValueError(
                f"unknown Atari option {unknown[0]!r}; a protocol has {', '.join(known)}"
                + did_you_mean(unknown[0], known)
            )
        return replace(self, **options)


PROTOCOLS: dict[str, Protocol] = {
    # Scores are full games; the learner sees a lost life as an end, as published.
    "full-game": Protocol(),
    # The published evaluation: a score is the return of one life. One difference remains: its
    # wrappers press FIRE after the no-ops and, in their order, again after each lost life;
    # ale-py presses it once a game, before the no-ops.
    "published": Protocol(score="life"),
    # What Machado et al. 2018 recommend for comparing agents.
    "machado": Protocol(
        sticky=0.25, noop_max=0, fire_at_reset=False, full_action_set=True, life_signal=False
    ),
    # No-op starts (Mnih et al. 2015) with the 30-minute cap, as in most tables since.
    "noop30": Protocol(fire_at_reset=False, life_signal=False),
}


def protocol_named(name: str) -> Protocol:
    """Looks a preset up; an unknown name raises `ValueError` that lists the known."""
    if name not in PROTOCOLS:
        hint = did_you_mean(name, PROTOCOLS)
        raise ValueError(f"unknown protocol {name!r}; known: {', '.join(PROTOCOLS)}{hint}")
    return PROTOCOLS[name]
