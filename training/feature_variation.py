"""How much a stem's features differ between pictures: whether the agent sees anything at all."""

from contextlib import ExitStack
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn

from fastweights.agents import ImageStem, Network


class FeatureVariation:
    """A context in which the first learning pass of each update through an image stem is measured.

    The features of a batch are their mean over the frames plus what differs between the frames. The
    measurement is the second part's size relative to the first's (root mean squares). Around 1 is
    usual after some training; far below 0.01 the policy hardly depends on the picture (see
    docs/design/stems.md). Blank frames are left out. Stems of vectors are not measured.
    """

    def __init__(self, network: Network):
        self._stem = network.stem
        self._hooks = ExitStack()
        self._found: Tensor | None = None

    def __enter__(self) -> Self:
        if isinstance(self._stem, ImageStem):
            self._hooks.enter_context(self._stem.register_forward_hook(self._measure))
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
        found, self._found = self._found, None
        return {} if found is None else {"feature_variation": found.item()}

    def _measure(self, stem: nn.Module, inputs: tuple[Tensor], features: Tensor) -> None:
        if self._found is not None or not torch.is_grad_enabled():  # acting, or computing targets
            return
        self._found = variation(inputs[0], features.detach())


def variation(frames: Tensor, features: Tensor) -> Tensor:
    """Return the relative size of what differs between the features [N, F] of frames [N, ...].

    NaN if all frames are blank, or all features 0.
    """
    seen = frames.flatten(1).any(1).to(features.dtype)[:, None]  # by weights: no wait for a GPU
    common = (seen * features).sum(0) / seen.sum()
    differing = (seen * (features - common).square()).mean(1).sum() / seen.sum()
    return (differing / common.square().mean()).sqrt()
