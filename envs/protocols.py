"""Atari evaluation protocols: all settings that vary between papers, as named presets.

- Mnih et al. 2015, Human-level control through deep reinforcement learning (Nature 518).
- Hausknecht and Stone 2015, Deep Recurrent Q-Learning for Partially Observable MDPs
  (arXiv:1507.06527).
- Machado et al. 2018, Revisiting the Arcade Learning Environment (JAIR 61).

Common to all: 84x84 grey pictures, maximum over the last two of four frames, stacks of four (Mnih
et al. 2015, Methods).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

from fastweights.host import did_you_mean

HALF_AN_HOUR = 108_000  # emulator frames at 60 Hz (Hessel et al. 2018)

# ale-py takes C ints; larger values would make games unplayable or exceed memory.
_RANGES = {
    "frame_skip": range(1, 1001),
    "frame_stack": range(1, 257),
    "noop_max": range(108_001),
    "max_frames": range(1, 2**31),
}


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """All Atari settings that scores depend on."""

    frame_skip: int = 4  # emulator frames per agent step, all with one action (Mnih et al. 2015)
    max_pool: bool = True  # maximum over the step's last two frames (Mnih et al. 2015)
    frame_stack: int = 4  # pictures per observation, oldest first (Mnih et al. 2015)
    # Probability, at each emulator frame, that the previous action is repeated
    # (Machado et al. 2018: 0.25).
    sticky: float = 0.0
    # Probability, at each agent step, that the newest picture is blank (all zero). It stays blank
    # as long as it is in the stack (Hausknecht and Stone 2015: 0.5, with single pictures).
    flicker: float = 0.0
    # A game starts after `draw` emulator frames without a decision, draw uniform in
    # 0 .. noop_max - 1 (ale-py's convention; Mnih et al. 2015: up to 30). 0 for none.
    noop_max: int = 30
    # Press FIRE in the first of these frames if the game has the button: some games do not start
    # without it. This happens only at a game's reset; after a lost life, the agent must press it.
    fire_at_reset: bool = True
    full_action_set: bool = False  # all 18 actions (Machado et al. 2018), or the game's minimal set
    # A lost life ends an episode for the learner (memory reset, zero bootstrap) while the game
    # continues (Mnih et al. 2015; Machado et al. 2018 advise against it).
    life_signal: bool = True
    # Time limit of a game in emulator frames, counted from the first decision. None: no limit.
    max_frames: int | None = HALF_AN_HOUR
    score: Literal["game", "life"] = "game"  # unit of play whose return is reported

    def __post_init__(self):
        if type(self.sticky) not in (int, float) or not 0.0 <= self.sticky < 1.0:
            raise ValueError(f"sticky must be at least 0 and below 1, got {self.sticky!r}")
        if type(self.flicker) not in (int, float) or not 0.0 <= self.flicker <= 1.0:
            raise ValueError(f"flicker must be from 0 to 1, got {self.flicker!r}")
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
        """Return a copy with some fields changed; raise `ValueError` for an unknown field."""
        known = [field.name for field in fields(self)]
        if unknown := sorted(set(options) - set(known)):
            raise ValueError(
                f"unknown Atari option {unknown[0]!r}; a protocol has {', '.join(known)}"
                + did_you_mean(unknown[0], known)
            )
        return replace(self, **options)


PROTOCOLS: dict[str, Protocol] = {
    # Scores are returns of full games; a lost life ends an episode for the learner, as published.
    "full-game": Protocol(),
    # The published evaluation: a score is the return of one life. Three differences remain: the
    # published wrappers draw 1 to 30 no-ops, ours 0 to 29; they press FIRE after the no-ops and
    # again after each lost life, whereas ale-py presses it once per game, before the no-ops; and
    # the publication sets no time limit (docs/evaluation.md).
    "published": Protocol(score="life"),
    # Recommended by Machado et al. 2018 for comparing agents.
    "machado": Protocol(
        sticky=0.25, noop_max=0, fire_at_reset=False, full_action_set=True, life_signal=False
    ),
    # No-op starts (Mnih et al. 2015) and the 30-minute limit of most later tables.
    "noop30": Protocol(fire_at_reset=False, life_signal=False),
}


def protocol_named(name: str) -> Protocol:
    """Return the preset called `name`; raise a `ValueError` that lists the known names."""
    if name not in PROTOCOLS:
        hint = did_you_mean(name, PROTOCOLS)
        raise ValueError(f"unknown protocol {name!r}; known: {', '.join(PROTOCOLS)}{hint}")
    return PROTOCOLS[name]
