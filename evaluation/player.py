"""A trained network at the controls of many games, such that no game knows of the others.

A game is decided by its seed alone: by how the environment starts and draws, by the random numbers
that pick sampled actions, which each game has of its own, and by arithmetic. The last is not
obvious. Convolutions and matrix products round differently in batches of different size (seen: 1e-7
in the policy's logits between batches of 1 and of 16, on a CPU), and one rounded tie changes a
whole game. So the network always sees blocks of the same number of rows, filled up where fewer
games are left.
"""

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fastweights.agents import Decision, Network, NetworkOutput
from fastweights.envs import Environments, TimeStep
from fastweights.kernels.recurrence import State, map_state

ActionMode = Literal["argmax", "sampled"]
BLOCK = 16  # rows the network sees at once

_NOISE = 0xAC7  # sets the actions' random numbers apart from the environments' of the same seed


class Player:
    """Plays; between two calls it stands before `row`, on which it has not acted yet.

    Environment `i` is seeded `seed + i` by whoever made `environments`; the same number seeds the
    choice of its sampled actions. `playing`: the environments that get actions, all at first.
    """

    def __init__(
        self,
        network: Network,
        environments: Environments,
        *,
        action_mode: ActionMode,
        seed: int,
        device: torch.device | str = "cpu",
    ):
        self._network, self.environments = network, environments
        self._greedy, self._device = action_mode == "argmax", torch.device(device)
        self._noise = [
            np.random.default_rng([seed + env, _NOISE]) for env in range(environments.num_envs)
        ]
        self._last_action = np.zeros(environments.num_envs, np.int64)
        self.row: TimeStep = environments.reset()
        self.playing = np.arange(environments.num_envs)
        self._rows = _filled(self.playing)
        self._states = [network.initial_state(BLOCK) for _ in self._rows]

    def step(self) -> Decision:
        """One action of every game still played; the others are given action 0.

        Returns what was decided in the games of `playing`, in that order.
        """
        thoughts = []
        for number in range(len(self._rows)):
            thought, self._states[number] = self._think(*self._seen(number))
            thoughts.append(thought)
        logits, value = (
            torch.cat(p, 1)[0, : len(self.playing)] for p in zip(*thoughts, strict=True)
        )
        chosen = self._choose(logits, self.playing)
        action = np.zeros(self.environments.num_envs, np.int64)
        action[self.playing] = chosen
        self.row, self._last_action = self.environments.step(action), action
        return Decision(torch.from_numpy(chosen), logits, value)

    @torch.no_grad()
    def inspect(self) -> list[dict[str, Tensor]]:
        """The core's inside when it consumes the current row, of the first block's games."""
        return self._network.inspect(*self._seen(0))

    def keep(self, envs: Int[np.ndarray, " N"]) -> None:
        """May care no longer for any but `envs`; closes ranks where that saves a block."""
        stay = np.isin(self.playing, envs)
        if -(-stay.sum() // BLOCK) == len(self._rows):
            return
        joined = _joined(self._states)
        self.playing = self.playing[stay]
        self._rows = _filled(self.playing)
        self._states = [
            map_state(lambda part, rows=rows: part[torch.as_tensor(rows)], joined)
            for rows in _filled(np.flatnonzero(stay))
        ]

    def _seen(self, block: int) -> tuple[Any, ...]:
        """The network's arguments at the current row, with a time axis of one."""
        row, envs = self.row, self._rows[block]
        parts = (row.frame, row.reward, row.is_first, self._last_action)
        sent = (torch.as_tensor(part[envs], device=self._device)[None] for part in parts)
        return *sent, self._states[block]

    @torch.no_grad()
    def _think(self, *seen: Any) -> tuple[NetworkOutput, State]:
        return self._network(*seen)

    def _choose(
        self, logits: Float[Tensor, "N A"], envs: Int[np.ndarray, " N"]
    ) -> Int[np.ndarray, " N"]:
        if self._greedy:
            return logits.argmax(-1).cpu().numpy()
        # Where the cumulative distribution passes a uniform draw.
        draw = np.array([self._noise[env].random() for env in envs])
        cumulative = logits.cpu().double().softmax(-1).cumsum(-1).numpy()[:, :-1]
        return (cumulative <= draw[:, None]).sum(1)


def _filled(envs: Int[np.ndarray, " N"]) -> Int[np.ndarray, "blocks rows"]:
    """In blocks, the last filled up with its own first entry."""
    missing = -len(envs) % BLOCK
    first_of_last = envs[len(envs) - len(envs) % BLOCK :][:1]
    return np.concatenate((envs, np.repeat(first_of_last, missing))).reshape(-1, BLOCK)


def _joined(states: list[State]) -> State:
    """States of blocks as one, along the batch axis."""
    if isinstance(states[0], Tensor):
        return torch.cat(states)
    parts = [_joined(list(part)) for part in zip(*states, strict=True)]
    return type(states[0])(*parts) if hasattr(states[0], "_fields") else type(states[0])(parts)
