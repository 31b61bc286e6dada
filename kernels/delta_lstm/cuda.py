"""The Delta LSTM, version D, on CUDA tensors; the kernels are in `cuda.cu`."""

from torch import Tensor

from kernels.cuda.arguments import Sizes, fresh
from kernels.cuda.launch import Kernel, launch
from kernels.cuda.support import refuse

LARGEST_HEAD = 32
OPTIONS = {"version": ("D",)}
SAVED = {
    "error": "T B H 3 V",
    "recurrent_error": "T B H 3 V",
    "gates": "T B H 3 V",  # u, f, o
    "cell": "T B H V",
    "reading": "T B H V",  # softmax(y_{t-1})
}
FORWARD = Kernel("delta_lstm", "forward", warps=3)
BACKWARD = Kernel("delta_lstm", "backward", warps=6)


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    recurrent_k: Tensor,
    recurrent_v: Tensor,
    recurrent_beta: Tensor,
    is_first: Tensor,
    weights: Tensor,
    recurrent_weights: Tensor,
    cell: Tensor,
    output: Tensor,
    version: str = "D",
    save: bool = True,
) -> tuple:
    """(y, the four final states, *SAVED if `save`); shapes as in `reference.unroll`."""
    refuse("delta_lstm", OPTIONS, version=version)
    sizes = _sizes(k, v)
    rows = (q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta)
    given = [gate for tensor in rows for gate in tensor.unbind(3)]
    given += [is_first, *weights.unbind(2), *recurrent_weights.unbind(2), cell, output]
    y = q.new_empty(v.shape[:3] + v.shape[4:])
    results = (y, *fresh(weights, recurrent_weights, cell, output))
    saved = fresh(v, v, v, y, y) if save else ()
    launch(FORWARD, sizes, given, (*results, *(saved or [None] * len(SAVED))))
    return results + saved


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    recurrent_k: Tensor,
    recurrent_v: Tensor,
    recurrent_beta: Tensor,
    is_first: Tensor,
    weights: Tensor,
    recurrent_weights: Tensor,
    cell: Tensor,
    output: Tensor,
    error: Tensor,
    recurrent_error: Tensor,
    gates: Tensor,
    cells: Tensor,
    reading: Tensor,
    grad_y: Tensor,
    grad_final: Tensor,
    grad_recurrent_final: Tensor,
    grad_final_cell: Tensor,
    grad_final_output: Tensor,
    version: str = "D",
) -> tuple:
    """The gradients of the seven inputs and the four initial states."""
    read = (q, k, recurrent_k, beta, recurrent_beta)
    given = [gate for tensor in read for gate in tensor.unbind(3)]
    given += [is_first, *weights.unbind(2), *recurrent_weights.unbind(2), cell, grad_y]
    given += [*grad_final.unbind(2), *grad_recurrent_final.unbind(2)]
    given += [grad_final_cell, grad_final_output]
    rows = (q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta)
    gradients = fresh(*rows, weights, recurrent_weights, cell, output)
    of_q, of_k, of_v, of_beta, of_rk, of_rv, of_rbeta, *of_state = gradients
    own = (error, recurrent_error, gates, cells, reading)
    own += (of_q, of_k, of_rk, of_v, of_rv, of_beta, of_rbeta, *of_state)
    launch(BACKWARD, _sizes(k, v), given, own)
    return gradients


def _sizes(k: Tensor, v: Tensor) -> Sizes:
    return Sizes(*k.shape[:3], k.shape[-1], v.shape[-1])
