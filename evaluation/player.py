"""A trained network that plays many games, each independent of the others.

A game depends only on its seed: the environment's start and draws do, and so do the random numbers
for sampled actions, which are separate for each game. Arithmetic needs care: convolutions and
matrix products round differently in batches of different sizes (1e-7 in the policy's logits between
batches of 1 and of 16, on a CPU), and one rounded tie changes a whole game. So the network always
reads blocks of the same number of rows, padded if fewer games are left.
"""

from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fastweights.agents import Decision, Network, NetworkOutput
from fastweights.envs import Environments, TimeStep
from fastweights.host import one_of
from fastweights.kernels import State, map_state, refilled, tensors_of

ActionMode = Literal["argmax", "sampled"]
BLOCK = 16  # rows per network call

_NOISE = 0xAC7  # separates the actions' random numbers from the environments' of the same seed


class Player:
    """The state of the games between two calls: `row` is the next row to act on.

    The caller has created `environments` with seed `seed + i` for environment i; the same number
    seeds its sampled actions. `playing`: the environments that get actions, initially all. Raises a
    one-line `ValueError` for an unknown action mode.
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
        one_of("action mode", action_mode, get_args(ActionMode))
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
        """Act once in every game in `playing`, and return these decisions in order.

        The other games get action 0.
        """
        thoughts = []
        for number in range(len(self._rows)):
            thought, self._states[number] = self._think(*self._seen(number))
            thoughts.append(thought)
        logits, value = (
            torch.cat(p, 1)[0, : len(self.playing)] for p in zip(*thoughts, strict=True)
        )
        chosen = self._choose(logits)
        action = np.zeros(self.environments.num_envs, np.int64)
        action[self.playing] = chosen
        self.row, self._last_action = self.environments.step(action), action
        return Decision(torch.from_numpy(chosen), logits, value)

    @torch.no_grad()
    def inspect(self) -> list[dict[str, Tensor]]:
        """Return `Core.inspect` of the current row, for the first block's games."""
        return self._network.inspect(*self._seen(0))

    def keep(self, envs: Int[np.ndarray, " N"]) -> None:
        """Drop all games but `envs` if that saves a block; otherwise keep all of them.

        `playing` lists the games that are kept and get actions.
        """
        stay = np.isin(self.playing, envs)
        if -(-stay.sum() // BLOCK) == len(self._rows):
            return
        parts = zip(*map(tensors_of, self._states), strict=True)
        joined = refilled(self._states[0], map(torch.cat, parts))
        self.playing = self.playing[stay]
        self._rows = _filled(self.playing)
        self._states = [
            map_state(lambda part, rows=rows: part[torch.as_tensor(rows)], joined)
            for rows in _filled(np.flatnonzero(stay))
        ]

    def _seen(self, block: int) -> tuple[Any, ...]:
        """Return the network's arguments at the current row, with a time axis of one."""
        row, envs = self.row, self._rows[block]
        parts = (row.frame, row.reward, row.is_first, self._last_action)
        sent = (torch.as_tensor(part[envs], device=self._device)[None] for part in parts)
        return *sent, self._states[block]

    @torch.no_grad()
    def _think(self, *seen: Any) -> tuple[NetworkOutput, State]:
        return self._network(*seen)

    def _choose(self, logits: Float[Tensor, "N A"]) -> Int[np.ndarray, " N"]:
        if self._greedy:
            return logits.argmax(-1).cpu().numpy()
        # The action at which the cumulative distribution passes a uniform draw.
        draw = np.array([self._noise[env].random() for env in self.playing])
        cumulative = logits.cpu().double().softmax(-1).cumsum(-1).numpy()[:, :-1]
        return (cumulative <= draw[:, None]).sum(1)


def _filled(envs: Int[np.ndarray, " N"]) -> Int[np.ndarray, "blocks rows"]:
    """Return blocks of environments, the last padded with its own first entry."""
    missing = -len(envs) % BLOCK
    first_of_last = envs[len(envs) - len(envs) % BLOCK :][:1]
    return np.concatenate((envs, np.repeat(first_of_last, missing))).reshape(-1, BLOCK)
