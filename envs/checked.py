"""What people's own environments return, held to what they declare."""

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Space

from fastweights.envs.interface import BrokenEnvironment

_RETURNED = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}


class Checked(gymnasium.Wrapper):
    """An environment, called `name`, that is told what is wrong with what it returns."""

    def __init__(self, env: gymnasium.Env, name: str):
        super().__init__(env)
        self._name = name
        parameters = inspect.signature(env.reset).parameters
        takes_all = any(one.kind == one.VAR_KEYWORD for one in parameters.values())
        missing = [one for one in ("seed", "options") if one not in parameters]
        if missing and not takes_all:
            raise BrokenEnvironment(
                f"{name}: reset() does not take {missing[0]!r}: "
                "declare reset(self, *, seed=None, options=None)"
            )

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """See `gymnasium.Env.reset`. Raises `BrokenEnvironment`."""
        result = check_parts(self.env.reset(seed=seed, options=options), "reset", self._name)
        self._check_observation(result[0], "reset")
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        """See `gymnasium.Env.step`. Raises `BrokenEnvironment`."""
        result = check_parts(self.env.step(action), "step", self._name)
        self._check_observation(result[0], "step")
        if np.size(result[1]) != 1 or np.asarray(result[1]).dtype.kind not in "biuf":
            raise BrokenEnvironment(
                f"{self._name}: step() returned the reward {_short(result[1])}: return one number"
            )
        return result

    def _check_observation(self, observation: Any, method: str) -> None:
        space = self.env.observation_space
        if isinstance(space, Box):
            array = np.asarray(observation)
            if array.shape == space.shape and np.can_cast(array.dtype, space.dtype, "same_kind"):
                return
            given = f"shape {array.shape} and kind {array.dtype}"
        else:
            if space.contains(observation):
                return
            given = _short(observation)
        raise BrokenEnvironment(_other_observation(self._name, method, given, space))


def checked(creator: Callable[..., gymnasium.Env], name: str) -> Callable[..., gymnasium.Env]:
    """What makes the same environments as `creator`, `Checked`."""

    def create(**options: Any) -> gymnasium.Env:
        made = creator(**options)
        return Checked(made, name) if isinstance(made, gymnasium.Env) else made

    if hasattr(creator, "metadata"):  # where Gymnasium looks for its ways to render
        create.metadata = creator.metadata
    return create


def check_parts(result: Any, method: str, name: str) -> tuple:
    """Returns what `reset` or `step` returned. Raises `BrokenEnvironment` for too few values."""
    wanted = _RETURNED[method]
    if not isinstance(result, tuple) or len(result) != len(wanted):
        count = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise BrokenEnvironment(f"{name}: {method}() returned {count}: return {', '.join(wanted)}")
    return result


def check_batch_of(observation: Any, space: Space, num_envs: int, method: str, name: str) -> None:
    """Raises `BrokenEnvironment` unless that is `num_envs` observations of `space`."""
    shape = (num_envs, *(space.shape or ()))
    if np.shape(observation) != shape:
        given = f"shape {np.shape(observation)} for {num_envs} environments"
        raise BrokenEnvironment(_other_observation(name, method, given, space))


def _other_observation(name: str, method: str, given: str, space: Space) -> str:
    declared = " ".join(str(space).split())
    return (
        f"{name}: {method}() returned an observation of {given}, and its observation_space is "
        f"{declared}: change one of them"
    )


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:40]}..."
