"""The form in which rollouts travel from actors to the learner under Ray: NumPy arrays.

Ray moves arrays through shared memory without pickling their data; it would copy tensors several
times. In addition, pictures travel unstacked (`training/ray/unstacking.py`).

Ray unpickles an actor's data before `unpack` sees it, so `unpack` offers no protection against
attacks. It rejects rollouts from other options or other versions of this program, with actions that
the environment lacks, or with numbers that are not finite.
"""

from collections.abc import Iterator
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from fastweights.agents import Collected, Network, Rollout
from fastweights.envs import Episode, Life
from fastweights.host import STAGES
from fastweights.kernels import State, map_state, refilled
from fastweights.training.ray.unstacking import Unstacked, restack, unstack
from fastweights.training.schedules.experience import Experience


class WireError(ValueError):
    """The data is not the expected rollout; the message names the difference."""


def rollout_form(network: Network, length: int, streams: int) -> Rollout:
    """Return `network`'s rollouts as tensors that have types and shapes but no memory."""
    pictures = tuple(network.config.frame_shape)
    frame_type = torch.uint8 if len(pictures) == 3 else torch.float32
    seen, done = (length + 1, streams), (length, streams)
    state = map_state(lambda part: part.to("meta"), network.initial_state(streams))
    with torch.device("meta"):
        return Rollout(
            frame=torch.empty(*seen, *pictures, dtype=frame_type),
            reward=torch.empty(seen),
            is_first=torch.empty(seen, dtype=torch.bool),
            last_action=torch.empty(seen, dtype=torch.int64),
            action=torch.empty(done, dtype=torch.int64),
            policy_logits=torch.empty(*done, network.config.num_actions),
            cut_value=torch.empty(done),
            value=torch.empty(0, streams),
            initial_state=state,
        )


def pack(experience: Experience) -> Experience:
    """Return `experience` with arrays instead of tensors, which may be on any device."""
    rollout = experience.collected.rollout
    if rollout.frame.ndim == 5 and rollout.frame.dtype == torch.uint8:
        rollout = rollout._replace(frame=unstack(rollout.frame))
    arrays = map_state(lambda tensor: tensor.detach().contiguous().cpu().numpy(), rollout)
    return _with_rollout(experience, arrays)


def check_times(timed: Any) -> None:
    """Raise `WireError` unless `timed` has seconds and a number for stages of this version."""
    if not (isinstance(timed, dict) and all(map(_is_time, timed.values()))):
        raise WireError("its times are not seconds and numbers of stages")
    if unknown := set(map(str, timed)).difference(STAGES):  # from another version
        raise WireError(f"times of unknown stages: {', '.join(sorted(unknown))}")


def _is_time(value: Any) -> bool:
    if not (isinstance(value, tuple) and len(value) == 2):
        return False
    seconds, count = value
    return isinstance(seconds, float) and isfinite(seconds) and isinstance(count, int)


def unpack(packed: Any, form: Rollout) -> Experience:
    """Return the argument of `pack`, on the CPU, in memory of its own.

    Raises:
        WireError: not a rollout, not of this form, an unknown action, or a number that is not
            finite.
    """
    if not (isinstance(packed, Experience) and isinstance(packed.collected, Collected)):
        raise WireError(f"not a rollout but a {type(packed).__name__}")
    if type(packed.version) is not int:
        raise WireError(f"the version {packed.version!r} is not a number of updates")
    for records, kind in ((packed.collected.episodes, Episode), (packed.collected.lives, Life)):
        if not (isinstance(records, list) and all(isinstance(one, kind) for one in records)):
            raise WireError(f"records that are not of the kind {kind.__name__}")
    arrays = packed.collected.rollout
    if isinstance(arrays.frame, Unstacked):
        arrays = arrays._replace(frame=_restacked(arrays.frame, form.frame))
    found, wanted = dict(_leaves(arrays)), dict(_leaves(form))
    if found.keys() != wanted.keys():
        raise WireError(f"{', '.join(sorted(found.keys() ^ wanted.keys()))} missing or unknown")
    for name, like in wanted.items():
        _check(name, found[name], like)
    for name in ("action", "last_action"):
        _check_within(name, found[name], form.policy_logits.shape[-1])
    return _with_rollout(packed, refilled(form, (found[name] for name in wanted)))


def _with_rollout(experience: Experience, rollout: Rollout) -> Experience:
    return experience._replace(collected=experience.collected._replace(rollout=rollout))


def _restacked(arrays: Unstacked, like: Tensor) -> Tensor:
    """Return the stacks of a compact form; raise `WireError` unless its parts make up `like`."""
    parts = Unstacked(*map(torch.tensor, arrays))
    if like.ndim != 5:
        raise WireError("frame is a stack of pictures")
    later, count = like[1:].flatten(0, 1), parts.breaks.numel()  # all stacks but row 0's
    _check("frame.first", parts.first, like[0])
    _check("frame.newest", parts.newest, like[1:, :, -1])
    _check("frame.breaks", parts.breaks, torch.empty(count, dtype=torch.int64, device="meta"))
    _check("frame.older", parts.older, like.new_empty(count, *like.shape[2:])[:, 1:])
    _check_within("frame.breaks", parts.breaks, len(later))
    if (parts.breaks.diff() <= 0).any():
        raise WireError("frame.breaks are not ascending")
    return restack(parts)


def _leaves(parts: State, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its name, such as `initial_state.hidden`, in `map_state`'s order."""
    for name, part in zip(getattr(parts, "_fields", range(len(parts))), parts, strict=True):
        if isinstance(part, tuple):
            yield from _leaves(part, f"{path}{name}.")
        else:
            yield f"{path}{name}", part if isinstance(part, Tensor) else torch.tensor(part)


def _check(name: str, tensor: Tensor, like: Tensor) -> None:
    if (tensor.dtype, tensor.shape) != (like.dtype, like.shape):
        raise WireError(
            f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, "
            f"not {like.dtype} of {tuple(like.shape)}"
        )
    if tensor.is_floating_point() and not tensor.isfinite().all():
        raise WireError(f"{name} holds {tensor[~tensor.isfinite()][0]}")


def _check_within(name: str, numbers: Tensor, count: int) -> None:
    wrong = numbers[(numbers < 0) | (numbers >= count)]
    if len(wrong):
        raise WireError(f"{name} holds {wrong[0]}, which must lie in [0, {count})")
