"""How much a stem's features differ between pictures, to see whether the agent sees anything."""

from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Self

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.optim import Optimizer

from fastweights.agents import ImageStem, Network


class Spread(NamedTuple):
    """The features of some frames: number of frames, mean, and squared distances from the mean."""

    frames: Float[Tensor, ""]
    mean: Float[Tensor, " F"]
    squares: Float[Tensor, ""]  # squared distances from the mean, summed over frames

    def joined(self, other: "Spread") -> "Spread":
        """Return the spread of both sets of frames together (Chan et al. 1979)."""
        frames = self.frames + other.frames
        share = other.frames / frames.clamp_min(1)
        apart = other.mean - self.mean
        between = apart.square().sum() * self.frames * share
        return Spread(frames, self.mean + share * apart, self.squares + other.squares + between)

    def variation(self) -> Tensor:
        """Return the size of the differences between the features, relative to their mean.

        NaN without frames, or if all features are 0.
        """
        return (self.squares / self.frames / self.mean.square().sum()).sqrt()


def spread(frames: UInt8[Tensor, "N C Y X"], features: Float[Tensor, "N F"]) -> Spread:
    """Return the spread of the features of frames that are not blank."""
    seen = frames.flatten(1).any(1).to(features.dtype)[:, None]  # as weights: no GPU sync
    mean = (seen * features).sum(0) / seen.sum().clamp_min(1)
    return Spread(seen.sum(), mean, (seen * (features - mean).square()).sum())


class FeatureVariation:
    """A context that measures an image stem's features once per batch.

    The features of a batch are their mean over the frames plus the differences between frames. The
    measurement is the size of the differences relative to the mean (root mean squares). Values
    around 1 are usual after some training. Far below 0.01, the policy barely depends on the picture
    (see docs/design/stems.md). Blank frames are left out. Stems of vectors are not measured.

    The measurement covers the passes with a gradient before the batch's first gradient step: all
    frames of this learner's share of the batch, or of its first minibatch, in all micro-batches.
    """

    def __init__(self, network: Network, optimizer: Optimizer):
        self._stem, self._optimizer = network.stem, optimizer
        self._hooks = ExitStack()
        self._found: Spread | None = None
        self._complete = False

    def __enter__(self) -> Self:
        if isinstance(self._stem, ImageStem):
            self._hooks.enter_context(self._stem.register_forward_hook(self._measure))
            self._hooks.enter_context(self._optimizer.register_step_pre_hook(self._complete_it))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hooks.close()

    def row(self) -> dict[str, float]:
        """Return the measurement since the last call as a column of the log; {} without one."""
        found, self._found, self._complete = self._found, None, False
        return {} if found is None else {"feature_variation": found.variation().item()}

    def _measure(self, stem: nn.Module, inputs: tuple[Tensor], features: Tensor) -> None:
        if self._complete or not torch.is_grad_enabled():  # acting, or computing targets
            return
        new = spread(inputs[0], features.detach())
        self._found = new if self._found is None else self._found.joined(new)

    def _complete_it(self, *step: object) -> None:
        self._complete = True
