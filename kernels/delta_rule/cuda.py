"""The delta rule on CUDA tensors, forward and backward; the kernels are in `cuda.cu`."""

from torch import Tensor

from kernels.cuda.arguments import Sizes, fresh
from kernels.cuda.launch import Kernel, launch

LARGEST_HEAD = 64
OPTIONS: dict[str, tuple[str, ...]] = {}
SAVED = {"error": "T B H V"}  # v - W_{t-1}^T k
FORWARD = Kernel("delta_rule", "forward")
BACKWARD = Kernel("delta_rule", "backward")


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    is_first: Tensor,
    weights: Tensor,
    save: bool = True,
) -> tuple:
    """(y, final weights, *SAVED if `save`); shapes as in `reference.unroll`."""
    sizes = Sizes(*k.shape, v.shape[-1])
    results, saved = fresh(v, weights), fresh(v) if save else ()
    own = (*results, *(saved or [None] * len(SAVED)))
    launch(FORWARD, sizes, (q, k, v, beta, is_first, weights), own)
    return results + saved


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    is_first: Tensor,
    weights: Tensor,
    error: Tensor,
    grad_y: Tensor,
    grad_final: Tensor,
) -> tuple:
    """The gradients of q, k, v, beta and the initial weights."""
    sizes = Sizes(*k.shape, v.shape[-1])
    gradients = fresh(q, k, v, beta, weights)
    given = (q, k, beta, is_first, weights, grad_y, grad_final)
    launch(BACKWARD, sizes, given, (error, *gradients))
    return gradients
