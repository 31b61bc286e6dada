"""Where a language model's run computes, with whom, on which text."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch

from fastweights.experiments.language_model.options import LanguageOptions
from fastweights.host.devices import (
    choose_device,
    choose_precision,
    compute_exactly,
    use_threads,
)
from fastweights.kernels import use_backend
from fastweights.tasks.language_model.corpus import Corpus
from fastweights.training.replicas import Replicas


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a run computes, with whom, on which text."""

    options: LanguageOptions
    text: Corpus
    device: torch.device
    precision: Callable[[], AbstractContextManager[object]]  # for the model's computations
    precision_name: str
    replicas: Replicas


def setting_of(options: LanguageOptions, replicas: Replicas, text: Corpus) -> Setting:
    """Chooses device, threads, precision and kernels.

    Raises a one-line `ValueError` for options that cannot be.
    """
    use_threads(options.num_threads, replicas.local_count)
    compute_exactly()
    device = replicas.device(choose_device(options.device), "--device")
    precision = choose_precision(options.precision, device)
    if options.kernels != "auto":
        use_backend(options.kernels)
    return Setting(
        options=options,
        text=text,
        device=device,
        precision=within(precision, device),
        precision_name=precision,
        replicas=replicas,
    )


def within(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """What a model computes within: autocast for bfloat16, nothing for float32."""
    if precision == "bfloat16":
        return partial(torch.autocast, device.type, torch.bfloat16)
    return nullcontext
