"""Conversion of an agent's action index, `0 .. A - 1`, to an action in a Gymnasium space."""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from jaxtyping import Int

from fastweights.envs.observations import in_one_line

MAX_JOINT_ACTIONS = 1024  # each adds a policy output and an input for the last action
SUPPORTED = f"Discrete and MultiDiscrete (at most {MAX_JOINT_ACTIONS:,} combinations)"


class ActionFormat(NamedTuple):
    """The actions that an agent can choose from, and their conversion for the environment."""

    count: int  # A
    meanings: tuple[str, ...]  # one word per action
    convert: Callable[[Int[np.ndarray, " B"]], Int[np.ndarray, "B ..."]]  # [B, *space.shape]


def action_format(space: Space, name: str = "this environment") -> ActionFormat:
    """Return the conversion of action indices to actions of `space`.

    - Discrete: index i is the i-th action, counted from the space's start.
    - MultiDiscrete: one index for each combination; the last component changes fastest.

    Args:
        space: action space of one environment.
        name: the environment's name in error messages.

    Raises:
        ValueError: an unsupported space, or too many combinations. The message says what is
            supported and which wrapper helps.
    """
    if isinstance(space, Discrete):
        count, first = int(space.n), int(space.start)
        return ActionFormat(count, tuple(map(str, range(count))), lambda choice: choice + first)
    if not isinstance(space, MultiDiscrete):
        if isinstance(space, Box):
            raise _refusal(name, space, "are continuous", "DiscretizeAction")
        raise _refusal(name, space, "are not one choice", "TransformAction")
    sizes = space.nvec.ravel().tolist()
    if (count := prod(sizes)) > MAX_JOINT_ACTIONS:
        raise _refusal(name, space, f"have {count:,} combinations", "TransformAction")
    offsets = np.stack(np.unravel_index(np.arange(count), sizes), axis=-1)
    joint = offsets.reshape(count, *space.shape).astype(space.dtype) + space.start
    meanings = tuple(",".join(map(str, row)) for row in joint.reshape(count, -1).tolist())
    return ActionFormat(count, meanings, lambda choice: joint[choice])


def _refusal(name: str, space: Space, why: str, wrapper: str) -> ValueError:
    return ValueError(
        f"{name} has the action space {in_one_line(space)}, whose actions {why}: supported are "
        f"{SUPPORTED}; wrap the environment in gymnasium.wrappers.{wrapper}"
    )
