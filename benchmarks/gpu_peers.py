"""Peers that are timed beside our kernels only on a GPU, and estimates of our kernels' times.

- captured: only our kernels' launches, replayed as a CUDA graph, without the overhead of Python and
  autograd.
- step by step: `rdn_step_by_step`, captured in the same way.
- fla: flash-linear-attention (`pip install flash-linear-attention`). It has no resets. Its chunked
  delta rule runs in bfloat16, because it refuses float32.
- cuDNN LSTM: `torch.nn.LSTM` as wide as all heads together, without resets, with its input
  projection.

`ESTIMATES` were derived from machine code before a GPU was available; see `against_foretold`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import rdn_step_by_step
from benchmarks.kernel_calls import CALLS, MODES, Row, example
from benchmarks.timing import Run
from fastweights.kernels.machinery.example import Example

CAPTURED, STEP_BY_STEP = "captured", "step by step"
FLA_NAMES = {"linear_attention": "linear_attn", "delta_rule": "delta_rule"}
FLA_DTYPES = {"fused_recurrent": torch.float32, "chunk": torch.bfloat16}
# Microseconds per step on an H100, estimated from machine code: (operation, mode, head size).
ESTIMATES = {
    ("delta_rule", "forward", 32): 0.18,
    ("delta_rule", "forward", 16): 0.14,
    ("delta_rnn", "forward", 32): 0.44,
    ("delta_rnn", "forward", 16): 0.32,
    ("recurrent_delta_rule", "forward", 32): 0.39,
    ("recurrent_delta_rule", "forward", 16): 0.35,
    ("recurrent_delta_rule", "forward+backward", 32): 0.39 + 0.54,
    ("recurrent_delta_rule", "forward+backward", 16): 0.35 + 0.29,
    ("self_referential", "forward", 32): 0.67,
    ("self_referential", "forward", 16): 0.32,
}
# Minimum cycles of one forward step, from its chain of dependent instructions.
FLOORS = {"recurrent_delta_rule": 475, "delta_rnn": 250, "self_referential": 400}


def peers(name: str, call: str, mode: str, device: str) -> tuple[dict[str, Run], list[Row]]:
    """Return the peers that run, by name, and a row with the reason for each other peer."""
    makers: dict[str, Callable[[Example], Run]] = {"cuDNN LSTM": partial(lstm, call, mode)}
    for kind in FLA_DTYPES if name in FLA_NAMES else ():
        makers[f"fla {kind}"] = partial(fla, kind, mode)
    kernel = getattr(example(name, call, device).operation.backends.get("cuda"), "kernel", None)
    if kernel is not None:
        forward = partial(kernel.forward, save=mode != "forward")
        makers[CAPTURED] = partial(captured, forward, kernel.backward, mode)
    if name == "recurrent_delta_rule":
        forward = partial(rdn_step_by_step.forward, save=mode != "forward")
        makers[STEP_BY_STEP] = partial(captured, forward, rdn_step_by_step.backward, mode)
    runs: dict[str, Run] = {}
    absent: list[Row] = []
    for peer, make in makers.items():
        try:
            runs[peer] = make(example(name, call, device))
        except ImportError as error:
            absent.append({"backend": peer, "absent": f"not installed: {error.name}"})
        except Exception as error:  # a peer may raise anything
            line = (str(error).strip() or type(error).__name__).splitlines()[0]
            absent.append({"backend": peer, "absent": line[:90]})
    return runs, absent


def fla(kind: str, mode: str, case: Example) -> Run:
    """Return a call of flash-linear-attention, on tensors already in its layout [B, T, H, ...].

    The call neither scales the queries nor normalises the output.
    """
    name = FLA_NAMES[case.operation.name]
    function = getattr(import_module(f"fla.ops.{name}"), f"{kind}_{name}")
    *rows, _, state = case.tensors
    rows = [row.transpose(0, 1).to(FLA_DTYPES[kind]).contiguous() for row in rows]
    options: dict[str, Any] = {"scale": 1.0, "initial_state": state, "output_final_state": True}
    if name == "linear_attn":
        options["normalize"] = False
    run = MODES[mode](partial(function, **options), rows, [*rows, state])
    run()
    return run


def lstm(call: str, mode: str, case: Example) -> Run:
    sizes, device = CALLS[call], case.tensors[0].device
    width = sizes["H"] * sizes["D"]
    module = nn.LSTM(width, width, device=device)
    x = torch.randn(sizes["T"], sizes["B"], width, device=device)
    return MODES[mode](module, [x], [x, *module.parameters()])


def launches(
    forward: Callable[..., Sequence[Tensor]],
    backward: Callable[..., Sequence[Tensor]],
    mode: str,
    case: Example,
) -> Run:
    """Return a call of the two functions of a `CudaKernel`, without autograd."""
    signature = case.operation.signature
    options, outputs = list(signature.options.values()), 1 + len(signature.state)
    y, *states = forward(*case.tensors, *options)[:outputs]
    grads = [torch.ones_like(y), *map(torch.zeros_like, states)]

    def run() -> None:
        saved = forward(*case.tensors, *options)[outputs:]
        if mode != "forward":
            backward(*case.tensors, *saved, *grads, *options)

    return run


def captured(
    forward: Callable[..., Sequence[Tensor]],
    backward: Callable[..., Sequence[Tensor]],
    mode: str,
    case: Example,
) -> Run:
    """Return the call that `launches` returns, captured as a CUDA graph."""
    run = launches(forward, backward, mode, case)
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def against_foretold(rows: Sequence[Row], gigahertz: float) -> list[Row]:
    """Return measured and estimated microseconds per step, for each captured call of our kernels.

    `of_floor` is the fraction of a forward pass's time explained by its dependency chain.
    """
    found = []
    for row in rows:
        if row["backend"] != CAPTURED or "median_ms" not in row:
            continue
        sizes, operation, mode = CALLS[row["size"]], row["operation"], row["mode"]
        step_us = 1e3 * row["median_ms"] / sizes["T"]
        cycles = FLOORS.get(operation) if mode == "forward" else None
        found.append(
            {name: row[name] for name in ("operation", "size", "mode")}
            | {
                "step_us": step_us,
                "estimated_us": ESTIMATES.get((operation, mode, sizes["D"])),
                "of_floor": None if cycles is None else cycles / (1e3 * gigahertz) / step_us,
            }
        )
    return found
