"""Linear attention on CUDA tensors, forward and backward; the kernels are in `cuda.cu`."""

from torch import Tensor

from kernels.cuda.arguments import Sizes
from kernels.cuda.launch import Kernel, launch

LARGEST_HEAD = 64
SAVED: dict[str, str] = {}
FORWARD = Kernel("linear_attention", "forward")
BACKWARD = Kernel("linear_attention", "backward")


def forward(q: Tensor, k: Tensor, v: Tensor, is_first: Tensor, weights: Tensor) -> tuple:
    """(y, final weights); shapes as in `reference.unroll`."""
    sizes = Sizes(*k.shape, v.shape[-1])
    y, final = v.new_empty(v.shape), weights.new_empty(weights.shape)
    launch(FORWARD, sizes, (q, k, v, is_first, weights), (y, final))
    return y, final


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
    gradients = tuple(tensor.new_empty(tensor.shape) for tensor in (q, k, v, weights))
    given = (q, k, v, is_first, weights, grad_y, grad_final)
    launch(BACKWARD, sizes, given, gradients)
    return gradients
