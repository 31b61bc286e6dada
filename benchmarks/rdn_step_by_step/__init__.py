"""The recurrent delta rule with one launch per step and atomic sums: a baseline for benchmarks.

The kernels published with the papers work this way. The source is `cuda.cu`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastweights.kernels.cuda.arguments import Sizes, padded
from fastweights.kernels.cuda.kernel import sum_of_outer, views_of
from fastweights.kernels.cuda.launch import WARP, Kernel, launch
from fastweights.kernels.registry import OPERATIONS

SOURCE = Path(__file__).parent / "cuda.cu"
SIGNATURE = OPERATIONS["recurrent_delta_rule"].signature
HEAD_SIZES = (8, 16, 32)
INPUTS, SAVED = 4, 6  # inputs: q, k, v, beta; as many weights follow


def forward(*call: Any, save: bool = True) -> list[Tensor]:
    """Like `CudaKernel.forward`, return (y, *final state, *saved); `save=False` saves nothing."""
    tensors = call[: len(SIGNATURE.arguments)]
    *given, initial, initial_output = tensors
    weights, output = initial.clone(), initial_output.clone()
    y = torch.empty_like(call[0]).contiguous()
    saved = _to_be_saved(y) if save else [None] * SAVED
    seen = views_of(SIGNATURE.arguments[: len(given)], given, SIGNATURE.check(tensors))
    _launch_each("forward", range(len(y)), seen, y, [weights, output, y, *saved])
    return [y, weights, output, *([*saved, weights] if save else [])]


def _to_be_saved(y: Tensor) -> list[Tensor]:
    """Allocate query, key, error, strength, hidden and before (see `cuda.cu`)."""
    query, key, error, hidden = (torch.empty_like(y) for _ in range(4))
    strength, before = y.new_empty(y.shape[:-1]), y.new_empty(*y.shape, y.shape[-1])
    return [query, key, error, strength, hidden, before]


def backward(*call: Any) -> list[Tensor]:
    """Like `CudaKernel.backward`, return the gradients of inputs, weights and initial state."""
    count = len(SIGNATURE.arguments)
    tensors, saved = call[:count], call[count : count + SAVED]
    final, grad_y, grad_final, grad_output = call[count + SAVED : count + SAVED + 4]
    weights, gradient, carried = final.clone(), grad_final.clone(), grad_output.clone()
    query, key, error, strength, hidden, _ = saved
    grads = [torch.empty_like(like) for like in (query, key, error, strength)]
    arguments = [*SIGNATURE.arguments[INPUTS : 2 * INPUTS + 1], SIGNATURE.output]
    given = [*tensors[INPUTS : 2 * INPUTS + 1], grad_y]
    seen = views_of(arguments, given, SIGNATURE.check(tensors))
    own = [weights, gradient, carried, *saved, *grads]
    _launch_each("backward", reversed(range(len(query))), seen, query, own)
    return [*grads, *(sum_of_outer(hidden, grad) for grad in grads), gradient, carried]


def _launch_each(
    name: str,
    steps: Iterable[int],
    seen: Sequence[Tensor],
    like: Tensor,
    own: Sequence[Tensor | None],
) -> None:
    """Launch the kernel `name` for each step; `like` has the shape of y."""
    kernel = Kernel(SOURCE, name, (padded(like.shape[-1]) ** 2 // WARP, 0))
    for step in steps:
        launch(kernel, Sizes(*like.shape, like.shape[-1], step), seen, own)
