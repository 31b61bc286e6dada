"""From an agent's choice, one number of `0 .. A - 1`, to an action of a Gymnasium space."""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from jaxtyping import Int

from fastweights.envs.observations import in_one_line

MAX_JOINT_ACTIONS = 1024  # for each the policy has an output, and the last action an input
SUPPORTED = f"Discrete and MultiDiscrete (at most {MAX_JOINT_ACTIONS:,} combinations)"


class ActionFormat(NamedTuple):
    """The choices that there are, and what the environment gets for them."""

    count: int  # A
    meanings: tuple[str, ...]  # a word for each
    convert: Callable[[Int[np.ndarray, " B"]], Int[np.ndarray, "B ..."]]  # [B, *space.shape]


def action_format(space: Space, name: str = "this environment") -> ActionFormat:
    """How choices become actions of `space`, that of the environment `name`.

    - Discrete: choice i is the i-th action, whatever the first is called.
    - MultiDiscrete: one choice for each combination, the last component fastest.

    Raises:
        ValueError: any other space, or too many combinations; it says what is supported, and the
            wrapper that helps.
    """
    if isinstance(space, Discrete):
        count, first = int(space.n), int(space.start)
        return ActionFormat(count, tuple(map(str, range(count))), lambda choice: choice + first)
    if not isinstance(space, MultiDiscrete):
        if isinstance(space, Box):
            raise _refusal(name, space, "are continuous", "DiscretizeAction")
        raise _refusal(name, space, "are not discrete", "TransformAction")
    sizes = space.nvec.ravel().tolist()
    if (count := prod(sizes)) > MAX_JOINT_ACTIONS:
        raise _refusal(name, space, f"have {count:,} combinations", "TransformAction")
    offsets = np.stack(np.unravel_index(np.arange(count), sizes), axis=-1)
    joint = offsets.reshape(count, *space.shape).astype(space.dtype) + space.start
    meanings = tuple(",".join(map(str, row)) for row in joint.reshape(count, -1).tolist())
    return ActionFormat(count, meanings, lambda choice: joint[choice])


def _refusal(name: str, space: Space, why: str, wrapper: str) -> ValueError:
    return ValueError(
        f"{name} has actions of {in_one_line(space)}, which {why}: an agent here chooses one "
        f"action of a list, so {SUPPORTED} are supported; wrap it in gymnasium.wrappers.{wrapper}"
    )
