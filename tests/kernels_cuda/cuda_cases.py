"""Cases of all operations with a CUDA source: random inputs, reference, pair of functions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastweights.kernels.cuda.kernel import CudaKernel
from fastweights.kernels.delta_lstm import reference as delta_lstm
from fastweights.kernels.delta_rnn import reference as delta_rnn
from fastweights.kernels.delta_rule import reference as delta_rule
from fastweights.kernels.elementwise_lstm import reference as elementwise_lstm
from fastweights.kernels.gated_delta_rule import reference as gated_delta_rule
from fastweights.kernels.linear_attention import reference as linear_attention
from fastweights.kernels.machinery.signature import shape
from fastweights.kernels.recurrent_delta_rule import reference as recurrent_delta_rule
from fastweights.kernels.registry import OPERATIONS
from fastweights.kernels.self_referential import reference as self_referential

Tensors = dict[str, Tensor]
BATCH, HEADS = 2, 2
TOLERANCE = 1e-5  # relative to the largest entry


@dataclass(frozen=True)
class Case:
    """An operation to test.

    `tensors` returns inputs, weights and states by name, in the order of the pair's arguments.
    `reference(tensors, is_first)` returns y and the final state. `states` names the states.
    """

    name: str
    states: tuple[str, ...]
    tensors: Callable[..., Tensors]
    reference: Callable[[Tensors, Tensor], tuple[Tensor, Any]]
    options: tuple[str, ...] = ()

    @property
    def operation(self) -> str:
        return self.name.split("-")[0]

    @property
    def pair(self) -> CudaKernel:
        return OPERATIONS[self.operation].backends["cuda"].kernel


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def mapped(*shape: int) -> Tensor:
    return numbers(*shape).softmax(-1)


def memory_inputs(T: int, B: int, H: int, K: int, V: int) -> Tensors:
    return {"q": mapped(T, B, H, K), "k": mapped(T, B, H, K), "v": numbers(T, B, H, V)}


def linear_attention_tensors(T: int, B: int, H: int, K: int, V: int) -> Tensors:
    return memory_inputs(T, B, H, K, V) | {"weights": numbers(B, H, K, V)}


def delta_rule_tensors(T: int, B: int, H: int, K: int, V: int) -> Tensors:
    beta = {"beta": numbers(T, B, H).sigmoid()}
    return memory_inputs(T, B, H, K, V) | beta | {"weights": numbers(B, H, K, V)}


def gated_delta_rule_tensors(T: int, B: int, H: int, K: int, V: int) -> Tensors:
    *rows, weights = delta_rule_tensors(T, B, H, K, V).items()
    return dict(rows) | {"log_decay": -numbers(T, B, H).exp() / 4} | dict([weights])


def recurrent_delta_rule_tensors(T: int, B: int, H: int, K: int, V: int) -> Tensors:
    rows = {"q": numbers(T, B, H, K), "k": numbers(T, B, H, K), "v": numbers(T, B, H, V)}
    columns = {"query": K, "key": K, "value": V}
    weights = {f"{name}_weights": numbers(H, V, n) / V**0.5 for name, n in columns.items()}
    weights["strength_weights"] = numbers(H, V) / V**0.5
    state = {"weights": numbers(B, H, K, V), "output": numbers(B, H, V)}
    return rows | {"beta": numbers(T, B, H)} | weights | state


def delta_rnn_tensors(T: int, B: int, H: int, K: int, V: int) -> Tensors:
    recurrent = {"recurrent_k": mapped(T, B, H, V), "recurrent_v": numbers(T, B, H, V)}
    recurrent["recurrent_beta"] = numbers(T, B, H).sigmoid()
    slow = memory_inputs(T, B, H, K, V) | {"beta": numbers(T, B, H).sigmoid()}
    state = {"weights": numbers(B, H, K, V), "recurrent_weights": numbers(B, H, V, V)}
    return slow | recurrent | state | {"output": numbers(B, H, V)}


def delta_rnn_a_tensors(T: int, B: int, H: int, K: int, V: int) -> Tensors:
    """Outputs of version A are distributions; others would saturate the softmax in float32."""
    return delta_rnn_tensors(T, B, H, K, V) | {"output": mapped(B, H, V)}


def delta_lstm_tensors(T: int, B: int, H: int, K: int, V: int) -> Tensors:
    slow = {"q": mapped(T, B, H, 3, K), "k": mapped(T, B, H, 3, K), "v": numbers(T, B, H, 3, V)}
    slow["beta"] = numbers(T, B, H, 3).sigmoid()
    recurrent = {"recurrent_k": mapped(T, B, H, 3, V), "recurrent_v": numbers(T, B, H, 3, V)}
    recurrent["recurrent_beta"] = numbers(T, B, H, 3).sigmoid()
    matrices = {"weights": numbers(B, H, 3, K, V), "recurrent_weights": numbers(B, H, 3, V, V)}
    return slow | recurrent | matrices | {"cell": numbers(B, H, V), "output": numbers(B, H, V)}


def self_referential_tensors(T: int, B: int, H: int, K: int, V: int) -> Tensors:
    columns = 3 * K + 4
    weights = {"initial_weights": numbers(H, K, columns) / K**0.5}
    return {"x": numbers(T, B, H, K)} | weights | {"shift": numbers(B, H, K, columns) / K**0.5}


def elementwise_lstm_tensors(T: int, B: int, H: int, K: int, V: int) -> Tensors:
    """Return tensors of K units; the number of heads is ignored."""
    rows = {name: numbers(T, B, K) for name in ("candidate", "input_gate", "forget_gate")}
    weights = {f"{name}_weights": numbers(K) for name in rows}
    return rows | weights | {"cell": numbers(B, K)}


def linear_attention_reference(t: Tensors, is_first: Tensor) -> tuple[Tensor, Any]:
    state = linear_attention.LinearAttentionState(t["weights"])
    return linear_attention.unroll(t["q"], t["k"], t["v"], is_first, state)


def delta_rule_reference(t: Tensors, is_first: Tensor) -> tuple[Tensor, Any]:
    state = delta_rule.DeltaRuleState(t["weights"])
    return delta_rule.unroll(t["q"], t["k"], t["v"], t["beta"], is_first, state)


def gated_delta_rule_reference(t: Tensors, is_first: Tensor) -> tuple[Tensor, Any]:
    *rows, weights = t.values()
    return gated_delta_rule.unroll(*rows, is_first, delta_rule.DeltaRuleState(weights))


def recurrent_delta_rule_reference(
    *options: str,
) -> Callable[[Tensors, Tensor], tuple[Tensor, Any]]:
    def reference(t: Tensors, is_first: Tensor) -> tuple[Tensor, Any]:
        state = recurrent_delta_rule.RecurrentDeltaRuleState(t["weights"], t["output"])
        names = ("query_weights", "key_weights", "value_weights", "strength_weights")
        recurrent = recurrent_delta_rule.RecurrentWeights(*(t[name] for name in names))
        rows = (t["q"], t["k"], t["v"], t["beta"])
        return recurrent_delta_rule.unroll(*rows, is_first, state, recurrent, *options)

    return reference


def delta_rnn_reference(version: str) -> Callable[[Tensors, Tensor], tuple[Tensor, Any]]:
    def reference(t: Tensors, is_first: Tensor) -> tuple[Tensor, Any]:
        *rows, weights, recurrent, output = t.values()
        state = delta_rnn.DeltaRNNState(weights, recurrent, output)
        return delta_rnn.unroll(*rows, is_first, state, version)

    return reference


def delta_lstm_reference(t: Tensors, is_first: Tensor) -> tuple[Tensor, Any]:
    rows, state = list(t.values())[:7], list(t.values())[7:]
    return delta_lstm.unroll(*rows, is_first, delta_lstm.DeltaLSTMState(*state), "D")


def self_referential_reference(*options: str) -> Callable[[Tensors, Tensor], tuple[Tensor, Any]]:
    def reference(t: Tensors, is_first: Tensor) -> tuple[Tensor, Any]:
        state = self_referential.SelfReferentialState(t["shift"])
        return self_referential.unroll(t["x"], is_first, state, t["initial_weights"], *options)

    return reference


MAPS = {  # options of operations that map keys and strengths inside
    (): ("softmax", "sigmoid"),
    ("two",): ("softmax", "double_sigmoid"),
}


def elementwise_lstm_reference(t: Tensors, is_first: Tensor) -> tuple[Tensor, Any]:
    *tensors, cell = t.values()
    weights = elementwise_lstm.ElementwiseWeights(*tensors[3:])
    state = elementwise_lstm.ElementwiseState(cell)
    return elementwise_lstm.unroll(*tensors[:3], is_first, state, weights)


DELTA_RNN_STATES = ("weights", "recurrent_weights", "output")
CASES = {
    case.name: case
    for case in (
        Case(
            "linear_attention",
            ("weights",),
            linear_attention_tensors,
            linear_attention_reference,
        ),
        Case("delta_rule", ("weights",), delta_rule_tensors, delta_rule_reference),
        Case(
            "gated_delta_rule", ("weights",), gated_delta_rule_tensors, gated_delta_rule_reference
        ),
        *(
            Case(
                "-".join(["recurrent_delta_rule", *name]),
                ("weights", "output"),
                recurrent_delta_rule_tensors,
                recurrent_delta_rule_reference(*options),
                options,
            )
            for name, options in (MAPS | {("unit",): ("unit", "double_sigmoid")}).items()
        ),
        Case(
            "delta_rnn-B",
            DELTA_RNN_STATES,
            delta_rnn_tensors,
            delta_rnn_reference("B"),
            ("B",),
        ),
        Case(
            "delta_rnn-A",
            DELTA_RNN_STATES,
            delta_rnn_a_tensors,
            delta_rnn_reference("A"),
            ("A",),
        ),
        Case("elementwise_lstm", ("cell",), elementwise_lstm_tensors, elementwise_lstm_reference),
        Case(
            "delta_lstm",
            ("weights", "recurrent_weights", "cell", "output"),
            delta_lstm_tensors,
            delta_lstm_reference,
            ("D",),
        ),
        *(
            Case(
                "-".join(["self_referential", *name]),
                ("shift",),
                self_referential_tensors,
                self_referential_reference(*options),
                options,
            )
            for name, options in MAPS.items()
        ),
    )
}

# The self-referential matrix has a single head size.
UNEQUAL = [name for name in CASES if "self_referential" not in name]
WIDE = [(name, size, size) for name in CASES for size in (33, 64)]
WIDE += [(name, *sizes) for name in UNEQUAL for sizes in ((33, 40), (63, 2), (5, 12), (20, 3))]

RESETS: dict[str, Callable[[int, int], Tensor]] = {
    "never": lambda T, B: torch.zeros(T, B, dtype=torch.bool),
    "first": lambda T, B: (torch.arange(T) == 0)[:, None].expand(T, B),
    "middle": lambda T, B: torch.arange(T)[:, None] == T // 2 + torch.arange(B) % 2,
    "last": lambda T, B: (torch.arange(T) == T - 1)[:, None].expand(T, B),
    "always": lambda T, B: torch.ones(T, B, dtype=torch.bool),
    "random": lambda T, B: torch.rand(T, B) < 0.3,
}


def odd_strides(tensor: Tensor) -> Tensor:
    """Return the same numbers with another order of axes in memory and with gaps."""
    order = list(reversed(range(tensor.ndim)))
    room = tensor.new_zeros([*(tensor.shape[axis] + 1 for axis in order), 2])
    inverse = [order.index(axis) for axis in range(tensor.ndim)]
    view = room[..., 1].permute(inverse)[tuple(slice(0, size) for size in tensor.shape)]
    view.copy_(tensor)
    return view


@contextmanager
def poisoned_outputs() -> Iterator[None]:
    """Fill new tensors with NaN, so that unwritten entries are noticed."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def expected(case: Case, tensors: Tensors, is_first: Tensor, grads: list[Tensor]) -> Tensors:
    """Return y, final states and all gradients by name, from the reference in float64."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}
    y, state = case.reference(leaves, is_first)
    outputs = {"y": y} | {f"final {n}": s for n, s in zip(case.states, state, strict=True)}
    found = torch.autograd.grad(
        list(outputs.values()), list(leaves.values()), grads, materialize_grads=True
    )
    return outputs | {f"grad {name}": g for name, g in zip(leaves, found, strict=True)}


def computed(case: Case, tensors: Tensors, is_first: Tensor, grads: list[Tensor]) -> Tensors:
    """Return the same tensors from the pair of functions, in float32."""
    states = [tensors[name] for name in case.states]
    inputs = [tensor for name, tensor in tensors.items() if name not in case.states]
    with poisoned_outputs():
        results = case.pair.forward(*inputs, is_first, *states, *case.options)
        outputs, saved = results[: 1 + len(states)], results[1 + len(states) :]
        found = case.pair.backward(*inputs, is_first, *states, *saved, *grads, *case.options)
    names = ["y", *(f"final {name}" for name in case.states)]
    names += [f"grad {name}" for name in tensors]
    return dict(zip(names, [*outputs, *found], strict=True))


def make(case: Case, T: int, B: int, H: int, K: int, V: int) -> tuple[Tensors, list[Tensor]]:
    """Return float64 inputs that float32 holds exactly, and gradients of y and the final states."""
    torch.manual_seed(0)
    tensors = {n: t.float().double() for n, t in case.tensors(T, B, H, K, V).items()}
    first = next(iter(tensors.values()))
    sizes = {"T": T, "B": B, "H": H, "K": K, "V": V, "D": K}
    y = first.new_empty(shape(case.pair.signature.output.axes, sizes))
    like = [y, *(tensors[name] for name in case.states)]
    return tensors, [torch.randn_like(tensor).float().double() for tensor in like]


def largest_relative_error(actual: Tensor, wanted: Tensor) -> float:
    if wanted.numel() == 0:
        return 0.0
    return ((actual.double() - wanted).abs().max() / (wanted.abs().max() + 1e-3)).item()


def _errors(actual: Tensors, wanted: Tensors) -> dict[str, float]:
    """Return the largest relative error of every tensor; NaN counts as infinity."""
    for name, tensor in wanted.items():
        assert actual[name].shape == tensor.shape, name
    found = {n: largest_relative_error(actual[n].cpu(), tensor) for n, tensor in wanted.items()}
    return {name: error if error == error else float("inf") for name, error in found.items()}


def check(
    case: Case,
    T: int,
    K: int,
    V: int,
    is_first: Tensor,
    device: str = "cpu",
    strided: bool = False,
) -> None:
    """Check that outputs and gradients are within the tolerance and that inputs are unchanged.

    On a GPU, where the reference itself has larger errors in float32, five times its largest is
    allowed: some random calls magnify any rounding, and a gradient through short vectors of length
    one cancels.
    """
    tensors, grads = make(case, T, BATCH, HEADS, K, V)

    def layout(tensor: Tensor) -> Tensor:
        tensor = tensor.to(device)
        return odd_strides(tensor) if strided else tensor.contiguous()

    single = {name: layout(tensor.float()) for name, tensor in tensors.items()}
    given = [layout(grad.float()) for grad in grads]
    before = [tensor.clone() for tensor in [*single.values(), *given]]
    wanted = expected(case, tensors, is_first, grads)
    actual = computed(case, single, layout(is_first), given)
    errors = _errors(actual, wanted)
    allowed = TOLERANCE
    if device != "cpu" and max(errors.values()) > allowed:
        floats = {name: tensor.float() for name, tensor in tensors.items()}
        rounded = expected(case, floats, is_first, [grad.float() for grad in grads])
        allowed = max(allowed, 5 * max(_errors(rounded, wanted).values()))
    assert max(errors.values()) <= allowed < float("inf"), errors
    for tensor, copy in zip([*single.values(), *given], before, strict=True):
        assert torch.equal(tensor, copy), "an input was changed"
