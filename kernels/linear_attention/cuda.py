"""Linear attention on CUDA tensors, forward and backward; the kernels are in `cuda.cu`."""

from torch import Tensor

from kernels.cuda.arguments import Sizes, fresh
from kernels.cuda.launch import Kernel, launch

LARGEST_HEAD = 64
OPTIONS: dict[str, tuple[str, ...]] = {}
SAVED: dict[str, str] = {}
FORWARD = Kernel("linear_attention", "forward")
BACKWARD = Kernel("linear_attention", "backward")


def forward(
    q: Tensor, k: Tensor, v: Tensor, is_first: Tensor, weights: Tensor, save: bool = True
) -> tuple:
    """(y, final weights); shapes as in `reference.unroll`. There is nothing to save."""
    sizes = Sizes(*k.shape, v.shape[-1])
    results = fresh(v, weights)
    launch(FORWARD, sizes, (q, k, v, is_first, weights), results)
    return results


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_first: Tensor,
    weights: Tensor,
    grad_y: Tensor,
    grad_final: Tensor,
) -> tuple:
    """The gradients of q, k, v and the initial weights."""
    sizes = Sizes(*k.shape, v.shape[-1])
    gradients = fresh(q, k, v, weights)
    given = (q, k, v, is_first, weights, grad_y, grad_final)
    launch(BACKWARD, sizes, given, gradients)
    return gradients
