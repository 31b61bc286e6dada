"""The setting of a language-model run: device, precision, learners and text."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch

from fastweights.experiments.language_model.options import LanguageOptions
from fastweights.host import choose_device, choose_precision, compute_exactly, use_threads
from fastweights.kernels import use_backend
from fastweights.tasks.language_model import Corpus
from fastweights.training import Replicas


class Precision(NamedTuple):
    """The precision of a model's computations, and their context."""

    name: str
    context: Callable[[], AbstractContextManager[object]]

    @classmethod
    def chosen(cls, asked: str, device: torch.device) -> "Precision":
        """Resolve `asked` for the device; raise a one-line `ValueError` if it is not available."""
        name = choose_precision(asked, device)
        return cls(name, within(name, device))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Device, precision, learners and text of a run."""

    options: LanguageOptions
    text: Corpus
    device: torch.device
    precision: Precision
    replicas: Replicas


def setting_of(options: LanguageOptions, replicas: Replicas, text: Corpus) -> Setting:
    """Choose device, threads, precision and kernels.

    Raises:
        ValueError: options that this machine does not support; one line.
    """
    use_threads(options.num_threads, replicas.local_count)
    compute_exactly()
    device = replicas.device(choose_device(options.device), "--device")
    precision = Precision.chosen(options.precision, device)
    if options.kernels != "auto":
        use_backend(options.kernels)
    return Setting(
        options=options,
        text=text,
        device=device,
        precision=precision,
        replicas=replicas,
    )


def within(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """Return the context of a model's computations: autocast for bfloat16, none for float32."""
    if precision == "bfloat16":
        return partial(torch.autocast, device.type, torch.bfloat16)
    return nullcontext
