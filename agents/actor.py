"""The actor: a network that plays a batch of environments, in single steps or whole rollouts."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import UnionType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fastweights.agents.graphed_step import GraphedStep
from fastweights.agents.network import Network
from fastweights.agents.rollout import Rollout
from fastweights.kernels import State, map_state, refilled, tensors_of


@runtime_checkable
class Row(Protocol):
    """The observation after each action; the reward answers that action."""

    frame: np.ndarray
    reward: np.ndarray
    is_first: np.ndarray
    episodes: Sequence[Any]
    lives: Sequence[Any]
    cut_off: Any  # None, or `streams` cut off by a time limit and the `frame` that would follow


@runtime_checkable
class Environments(Protocol):
    """A batch of endless streams; see `fastweights.envs.interface` for the full contract."""

    num_envs: int

    def reset(self) -> Row:
        """Restart every stream and return the first row."""

    def step(self, action: np.ndarray) -> Row:
        """Act in every environment and return the next row."""


class Collected(NamedTuple):
    """A rollout, with records of the episodes and lives that ended in it."""

    rollout: Rollout
    episodes: list[Any]
    lives: list[Any]


class Decision(NamedTuple):
    """The actor's decision on the current row."""

    action: Int[Tensor, " B"]
    policy_logits: Float[Tensor, "B A"]
    value: Float[Tensor, " B"]


class Actor:
    """Acts in a batch of environments; between calls, the current row is yet to be acted on.

    Args:
        network: the network.
        environments: the environments.
        device: device of the network.
        generator: random generator for actions; None for torch's global one of the device.
        streams: this actor's streams among `of` streams. Actors with equal generators together
            act as one actor with all environments would.
        of: total number of streams of all actors.
        graphed: record the step as a CUDA graph on a GPU; see `GraphedStep`.
        stage: `stage(name)` is entered around emulation, transfer and inference.
    """

    def __init__(
        self,
        network: Network,
        environments: Environments,
        *,
        device: torch.device | str = "cpu",
        generator: torch.Generator | None = None,
        streams: range | None = None,
        of: int | None = None,
        graphed: bool = False,
        stage: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ):
        self.network, self.environments, self.stage = network, environments, stage
        self._act = GraphedStep(network) if graphed else network
        self.device, self.generator = torch.device(device), generator
        self.streams = range(environments.num_envs) if streams is None else streams
        self.of = len(self.streams) if of is None else of
        self.last_action = torch.zeros(environments.num_envs, dtype=torch.int64, device=device)
        self._look(environments.reset())
        self.state: State = network.initial_state(environments.num_envs)

    def seen(self) -> tuple[Any, ...]:
        """Return the network's arguments at the current row, with a time axis of one."""
        return *(t[None] for t in (*self._sent, self.last_action)), self.state

    @torch.no_grad()
    def step(self) -> Decision:
        """Act on the current row, and step the environments and the state."""
        with self.stage("inference"):
            output, self.state = self._act(*self.seen())
            logits = output.policy_logits[0]
            self.last_action = self._choose(logits)
            chosen = self.last_action.cpu().numpy()
        with self.stage("emulation"):
            row = self.environments.step(chosen)
        with self.stage("transfer"):
            self._look(row)
        return Decision(self.last_action, logits, output.value[0])

    def collect(self, length: int, *, values: bool = False) -> Collected:
        """Play `length` steps; the returned tensors are new and on the actor's device.

        With `values`, the rollout contains the value of every row, including the last.
        """
        initial_state, episodes, lives = self.state, [], []
        seen, decisions, cut_off = [self.seen()[:4]], [], []
        for t in range(length):
            decisions.append(self.step())
            seen.append(self.seen()[:4])
            if self.row.cut_off is not None:
                cut_off.append((t, *self._cut_off(self.row.cut_off)))
            episodes.extend(self.row.episodes)
            lives.extend(self.row.lives)
        acted = torch.stack([d.value for d in decisions])
        value = torch.cat([acted, self._value()]) if values else acted[:0]
        with self.stage("transfer"):
            cut_value = torch.zeros_like(acted)
            for t, streams, following in cut_off:
                cut_value[t, streams] = following
            frame, reward, is_first, last_action = map(torch.cat, zip(*seen, strict=True))
            rollout = Rollout(
                frame=frame,
                reward=reward,
                is_first=is_first,
                last_action=last_action,
                action=torch.stack([d.action for d in decisions]),
                policy_logits=torch.stack([d.policy_logits for d in decisions]),
                cut_value=cut_value,
                value=value,
                initial_state=initial_state,
            )
        return Collected(rollout, episodes, lives)

    def snapshot(self) -> dict[str, Any] | None:
        """Return what `restore` needs to continue from here; None if the environments cannot.

        It consists of tensors and plain values, and of whatever the environments return.
        """
        environments = getattr(self.environments, "snapshot", lambda: None)()
        if environments is None:
            return None
        generator = self._random()
        return {
            "environments": _exchanged(environments, np.ndarray | np.generic, _to_plain),
            "row": list(self._sent),
            "last_action": self.last_action.clone(),
            "memory": tensors_of(self.state),
            "generator": generator.get_state(),
            "device": generator.device.type,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue where `snapshot` was taken; raises errors of environments, dicts and torch.

        On another kind of device, the actions' random numbers differ.
        """
        self.environments.restore(_exchanged(snapshot["environments"], Tensor, Tensor.numpy))
        self._sent = tuple(_like(self._sent, snapshot["row"]))
        (self.last_action,) = _like([self.last_action], [snapshot["last_action"]])
        self.state = refilled(self.state, _like(tensors_of(self.state), snapshot["memory"]))
        generator = self._random()
        if snapshot.get("device", generator.device.type) == generator.device.type:
            generator.set_state(snapshot["generator"].cpu())

    def _random(self) -> torch.Generator:
        """Return the generator of the actions: this actor's own, or its device's."""
        if self.generator is not None:
            return self.generator
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):
                return torch.cuda.default_generators[torch.cuda.current_device()]
        return torch.default_generator

    @torch.no_grad()
    def _value(self) -> Float[Tensor, "1 B"]:
        """Return the value of the current row, without choosing actions."""
        with self.stage("inference"):
            output, _ = self._act(*self.seen())
        return output.value

    @torch.no_grad()
    def _cut_off(self, cut_off: Any) -> tuple[Int[Tensor, " N"], Float[Tensor, " N"]]:
        """Return the streams whose episode was cut off, and the values of the rows to follow.

        The network reads such a row in the state after the last action, with that action's reward.
        """
        with self.stage("inference"):
            streams = _send(cut_off.streams, self.device)
            frame, reward = _send(cut_off.frame, self.device), self._sent[1][streams]
            goes_on = torch.zeros_like(reward, dtype=torch.bool)
            rows = frame, reward, goes_on, self.last_action[streams]
            state = map_state(lambda tensor: tensor[streams], self.state)
            output, _ = self.network(*(row[None] for row in rows), state)
        return streams, output.value[0]

    def _look(self, row: Row) -> None:
        self.row = row
        arrays = (row.frame, row.reward, row.is_first)
        self._sent = tuple(_send(array, self.device) for array in arrays)

    def _choose(self, logits: Float[Tensor, "B A"]) -> Int[Tensor, " B"]:
        # Choose the smallest of A exponential times whose rates are the actions' probabilities, as
        # torch.multinomial does, but with draws for all streams.
        clocks = logits.new_empty(self.of, logits.shape[1]).exponential_(generator=self.generator)
        own = clocks[self.streams.start : self.streams.stop]
        return (logits.softmax(-1) / own).argmax(-1)


def _like(fresh: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    """Return `given` on the devices of `fresh`; `ValueError` for others than tensors like these."""
    pairs = list(zip(fresh, given, strict=True))
    for model, tensor in pairs:
        if (tensor.shape, tensor.dtype) != (model.shape, model.dtype):
            raise ValueError(f"{_kind(tensor)} is not {_kind(model)}")
    return [tensor.to(model.device) for model, tensor in pairs]


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {list(tensor.shape)}"


def _to_plain(value: np.ndarray | np.generic) -> Tensor | bool | float | str | bytes:
    if isinstance(value, np.generic):
        return value.item()
    return torch.tensor(np.asarray(value, order="C"))  # a copy: the games keep using the array


def _exchanged(value: Any, kind: type | UnionType, exchange: Callable[[Any], Any]) -> Any:
    """Return `value` with every `kind` in its dicts, lists and tuples replaced."""
    if isinstance(value, kind):
        return exchange(value)
    if isinstance(value, dict):
        return {name: _exchanged(part, kind, exchange) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_exchanged(part, kind, exchange) for part in value)
    return value


def _send(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy to the device; to a GPU through pinned memory, without waiting for the copy."""
    tensor = torch.as_tensor(array)
    if device.type == "cuda":  # torch keeps the pinned copy until the stream has read it
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
