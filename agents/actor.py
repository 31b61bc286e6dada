"""The actor: a network playing a batch of environments, one step or one rollout at a time."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from agents.network import Network
from agents.rollout import Rollout
from kernels.recurrence import State


@runtime_checkable
class Row(Protocol):
    """What an environment shows after each action; reward answers that action."""

    frame: np.ndarray
    reward: np.ndarray
    is_first: np.ndarray
    episodes: Sequence[Any]
    lives: Sequence[Any]


@runtime_checkable
class Environments(Protocol):
    """A batch of endless streams; see `envs.interface` for the full contract."""

    num_envs: int

    def reset(self) -> Row: ...
    def step(self, action: np.ndarray) -> Row: ...


class Collected(NamedTuple):
    """A rollout and the records of what ended while it was collected."""

    rollout: Rollout
    episodes: list[Any]
    lives: list[Any]


class Decision(NamedTuple):
    """What the actor thought of the current row."""

    action: Int[Tensor, " B"]
    policy_logits: Float[Tensor, "B A"]
    value: Float[Tensor, " B"]


class Actor:
    """Plays; between two calls it stands before the row it has not yet acted on.

    `generator` draws the actions (None draws from torch's global one); `greedy` takes the most
    probable action instead.
    """

    def __init__(
        self,
        network: Network,
        environments: Environments,
        *,
        device: torch.device | str = "cpu",
        generator: torch.Generator | None = None,
        greedy: bool = False,
    ):
        self.network, self.environments = network, environments
        self.device, self.generator, self.greedy = torch.device(device), generator, greedy
        self.row: Row = environments.reset()
        self.last_action = torch.zeros(environments.num_envs, dtype=torch.int64)
        self.state: State = network.initial_state(environments.num_envs)

    @torch.no_grad()
    def step(self) -> Decision:
        """Acts on the current row, moves the environments and the state one step on."""
        row = self.row
        output, self.state = self.network(
            self._send(row.frame),
            self._send(row.reward),
            self._send(row.is_first),
            self.last_action.to(self.device)[None],
            self.state,
        )
        logits = output.policy_logits[0]
        action = self._choose(logits).cpu()
        self.row = self.environments.step(action.numpy())
        self.last_action = action
        return Decision(action, logits, output.value[0])

    def collect(self, length: int) -> Collected:
        """Plays `length` steps; the returned tensors are fresh and on the actor's device."""
        initial_state, episodes, lives = self.state, [], []
        rows, last_actions, decisions = [self.row], [self.last_action], []
        for _ in range(length):
            decisions.append(self.step())
            rows.append(self.row)
            last_actions.append(self.last_action)
            episodes.extend(self.row.episodes)
            lives.extend(self.row.lives)
        rollout = Rollout(
            frame=self._stack([row.frame for row in rows]),
            reward=self._stack([row.reward for row in rows]),
            is_first=self._stack([row.is_first for row in rows]),
            last_action=torch.stack(last_actions).to(self.device),
            action=torch.stack([d.action for d in decisions]).to(self.device),
            policy_logits=torch.stack([d.policy_logits for d in decisions]),
            initial_state=initial_state,
        )
        return Collected(rollout, episodes, lives)

    def _choose(self, logits: Float[Tensor, "B A"]) -> Int[Tensor, " B"]:
        if self.greedy:
            return logits.argmax(-1)
        return torch.multinomial(logits.softmax(-1), 1, generator=self.generator).squeeze(-1)

    def _send(self, array: np.ndarray) -> Tensor:
        """To the device, with a time axis of one."""
        return torch.as_tensor(array, device=self.device)[None]

    def _stack(self, arrays: list[np.ndarray]) -> Tensor:
        return torch.as_tensor(np.stack(arrays), device=self.device)
