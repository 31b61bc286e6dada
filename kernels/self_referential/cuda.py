"""The self-referential weight matrix on CUDA tensors; the kernels are in `cuda.cu`."""

from torch import Tensor

from kernels.cuda.arguments import Sizes, fresh, per_head
from kernels.cuda.launch import Kernel, launch
from kernels.cuda.support import refuse

LARGEST_HEAD = 32
OPTIONS = {"feature_map": ("softmax",)}
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
    save: bool = True,
) -> tuple:
    """(y, final shift, *SAVED if `save`); shapes as in `reference.unroll`."""
    refuse("self_referential", OPTIONS, feature_map=feature_map)
    sizes = Sizes(*x.shape, x.shape[-1])
    given = (x, per_head(initial_weights, sizes.batch), is_first, shift)
    results, saved = fresh(x, shift), ()
    if save:
        columns = (4, shift.shape[-1])
        saved = fresh(x, x) + tuple(x.new_empty(*x.shape[:-1], count) for count in columns)
    launch(FORWARD, sizes, given, (*results, *(saved or [None] * len(SAVED))))
    return results + saved


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
    grad_x, grad_shift = fresh(x, shift)
    # The kernel adds the gradient of W_t = W_0 + shift_t at each segment's start. In the last
    # segment that counts `grad_final`, which concerns the shift alone.
    grad_weights = shift.new_zeros(shift.shape)
    if sizes.time:
        grad_weights -= grad_final
    own = (query, key, strength, error, grad_x, grad_weights, grad_shift)
    launch(BACKWARD, sizes, given, own)
    return grad_x, grad_weights.sum(0), grad_shift
