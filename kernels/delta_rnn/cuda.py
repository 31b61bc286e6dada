"""The Delta RNN on CUDA tensors, forward and backward; the kernels are in `cuda.cu`."""

from torch import Tensor

from kernels.cuda.arguments import Sizes, fresh
from kernels.cuda.launch import Kernel, launch

LARGEST_HEAD = 32
OPTIONS = {"version": ("A", "B")}
SAVED = {"error": "T B H V", "recurrent_error": "T B H V", "reading": "T B H V"}
FORWARD = Kernel("delta_rnn", "forward")
BACKWARD = Kernel("delta_rnn", "backward", warps=2)


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
    output: Tensor,
    version: str = "B",
    save: bool = True,
) -> tuple:
    """(y, the three final states, *SAVED if `save`); shapes as in `reference.unroll`."""
    sizes = Sizes(*k.shape, v.shape[-1], option=version == "A")
    given = (q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta, is_first)
    given += (weights, recurrent_weights, output)
    results = fresh(v, weights, recurrent_weights, output)
    saved = fresh(v, v, v) if save else ()
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
    output: Tensor,
    error: Tensor,
    recurrent_error: Tensor,
    reading: Tensor,
    grad_y: Tensor,
    grad_final: Tensor,
    grad_recurrent_final: Tensor,
    grad_final_output: Tensor,
    version: str = "B",
) -> tuple:
    """The gradients of the seven inputs and the three initial states."""
    sizes = Sizes(*k.shape, v.shape[-1], option=version == "A")
    given = (q, k, recurrent_k, beta, recurrent_beta, is_first, weights, recurrent_weights, output)
    given += (grad_y, grad_final, grad_recurrent_final, grad_final_output)
    rows = (q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta)
    gradients = fresh(*rows, weights, recurrent_weights, output)
    of_q, of_k, of_v, of_beta, of_rk, of_rv, of_rbeta, *of_state = gradients
    own = (error, recurrent_error, reading, of_q, of_k, of_rk, of_v, of_rv, of_beta, of_rbeta)
    launch(BACKWARD, sizes, given, (*own, *of_state))
    return gradients
