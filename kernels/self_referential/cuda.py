"""The self-referential weight matrix on CUDA tensors; the kernels are in `cuda.cu`."""

from torch import Tensor

from kernels.cuda.arguments import Sizes, per_head
from kernels.cuda.launch import Kernel, launch
from kernels.cuda.support import only_softmax

LARGEST_HEAD = 32
SAVED = {  # after feature map and sigmoid; error is W^T (query - key), before the strengths
    "query": "T B H D",
    "key": "T B H D",
    "strength": "T B H 4",
    "error": "T B H 3*D+4",
}
FORWARD = Kernel("self_referential", "forward", warps=4)
BACKWARD = Kernel("self_referential", "backward", warps=4)


def forward(
    x: Tensor,
    initial_weights: Tensor,
    is_first: Tensor,
    shift: Tensor,
    feature_map: str = "softmax",
) -> tuple:
    """(y, final shift, *SAVED); shapes as in `reference.unroll`."""
    only_softmax("self_referential", feature_map)
    sizes = Sizes(*x.shape, x.shape[-1])
    given = (x, per_head(initial_weights, sizes.batch), is_first, shift)
    shapes = (x.shape, shift.shape, x.shape, x.shape)
    shapes += ((*x.shape[:-1], 4), (*x.shape[:-1], shift.shape[-1]))
    results = tuple(x.new_empty(shape) for shape in shapes)
    launch(FORWARD, sizes, given, results)
    return results


def backward(
    x: Tensor,
    initial_weights: Tensor,
    is_first: Tensor,
    shift: Tensor,
    query: Tensor,
    key: Tensor,
    strength: Tensor,
    error: Tensor,
    grad_y: Tensor,
    grad_final: Tensor,
    feature_map: str = "softmax",
) -> tuple:
    """The gradients of x, the initial weights and the initial shift."""
    sizes = Sizes(*x.shape, x.shape[-1])
    weights = per_head(initial_weights, sizes.batch)
    given = (x, weights, is_first, shift, grad_y, grad_final)
    grad_x, grad_shift = x.new_empty(x.shape), shift.new_empty(shift.shape)
    # The kernel adds the gradient of W_t = W_0 + shift_t at each segment's start. In the last
    # segment that counts `grad_final`, which concerns the shift alone.
    grad_weights = shift.new_zeros(shift.shape)
    if sizes.time:
        grad_weights -= grad_final
    own = (query, key, strength, error, grad_x, grad_weights, grad_shift)
    launch(BACKWARD, sizes, given, own)
    return grad_x, grad_weights.sum(0), grad_shift
