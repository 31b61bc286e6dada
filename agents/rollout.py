"""Rollouts, which go from actors to the learner, and the only time shift between the two.

Row t holds the agent's observation (`frame[t], reward[t], is_first[t], last_action[t]`) and its
decision (`action[t], policy_logits[t]`); `reward[t+1]` answers `action[t]`, and so does
`cut_value[t]`. There are T+1 rows of observations and T of decisions: the last row is the next
rollout's row 0 and is used only for its value.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from fastweights.kernels import State, map_state, refilled, tensors_of


class Rollout(NamedTuple):
    """T steps of B streams. `initial_state` is the core's state before row 0, detached."""

    frame: Shaped[Tensor, "T+1 B *frame"]
    reward: Float[Tensor, "T+1 B"]  # unclipped
    is_first: Bool[Tensor, "T+1 B"]
    last_action: Int[Tensor, "T+1 B"]
    action: Int[Tensor, "T B"]
    policy_logits: Float[Tensor, "T B A"]
    # The actor's value of the row that would have followed, where a time limit cut the episode off
    # after this action, and 0 elsewhere; always 0 if the environments do not report it (`CutOff`).
    cut_value: Float[Tensor, "T B"]
    # The actor's values of all rows (V = T+1) if it uses the learner's weights; otherwise V = 0.
    value: Float[Tensor, "V B"]
    initial_state: State

    def columns(self, start: int, stop: int) -> "Rollout":
        """Return the streams [start, stop) of this rollout, without a copy."""
        rows = (tensor[:, start:stop] for tensor in self[:-1])
        return Rollout(*rows, map_state(lambda tensor: tensor[start:stop], self.initial_state))

    def select(self, streams: Int[Tensor, " N"]) -> "Rollout":
        """Return a copy of the given streams of this rollout, in their order."""
        rows = (tensor.index_select(1, streams) for tensor in self[:-1])
        return Rollout(*rows, map_state(lambda tensor: tensor[streams], self.initial_state))

    def to(self, device: torch.device) -> "Rollout":
        """Return this rollout on `device`, without a copy if it is already there."""
        rows = (tensor.to(device) for tensor in self[:-1])
        return Rollout(*rows, map_state(lambda tensor: tensor.to(device), self.initial_state))

    @staticmethod
    def join(rollouts: Sequence["Rollout"]) -> "Rollout":
        """Concatenate the streams of equally long `rollouts`; a single rollout is not copied."""
        if len(rollouts) == 1:
            return rollouts[0]
        rows = (torch.cat(tensors, 1) for tensors in zip(*(r[:-1] for r in rollouts), strict=True))
        states = [rollout.initial_state for rollout in rollouts]
        parts = zip(*map(tensors_of, states), strict=True)
        return Rollout(*rows, refilled(states[0], map(torch.cat, parts)))


class Transitions(NamedTuple):
    """One action per row, with its consequences."""

    action: Int[Tensor, "T B"]
    policy_logits: Float[Tensor, "T B A"]  # the actor's
    reward: Float[Tensor, "T B"]  # of this action, unclipped
    discount: Float[Tensor, "T B"]  # of later rewards; 0 where this action ended the episode
    later: Float[Tensor, "T B"]  # discounted value of what follows in an episode that was cut off


def align(rollout: Rollout, discounting: float) -> Transitions:
    """Align each action with its reward: the only time shift in the project.

    An episode cut off by a time limit ends, too: the next row belongs to another episode. The rest
    of the cut episode is worth `cut_value`, or nothing, as in IMPALA.
    """
    ended = rollout.is_first[1:]
    discount = (~ended).to(rollout.reward.dtype) * discounting
    return Transitions(
        rollout.action,
        rollout.policy_logits,
        rollout.reward[1:],
        discount,
        discounting * rollout.cut_value,
    )
