"""The calls timed by `benchmarks/kernels.py`: their sizes, and backends that can compute them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import Run
from fastweights import kernels
from fastweights.host import memory_bytes
from fastweights.kernels.machinery.dispatch import BACKENDS
from fastweights.kernels.machinery.example import Example, make
from fastweights.kernels.registry import OPERATIONS

CALLS = {
    "rl": {"T": 50, "B": 32, "H": 4, "D": 32},
    "code": {"T": 456, "B": 64, "H": 16, "D": 16},
    "lm": {"T": 256, "B": 96, "H": 8, "D": 16},
    "acting1": {"T": 1, "B": 1, "H": 4, "D": 32},
    "acting32": {"T": 1, "B": 32, "H": 4, "D": 32},
}
SIZES = {"rl": ("rl",), "code": ("code",), "lm": ("lm",), "act": ("acting1", "acting32")}
RESETS = {"rl": 0.02}
COMPILED, COMPILED_STEP = "torch.compile", "torch.compile, per step"
# Autograd stores about three times the state for every step of the loop.
KEPT_STATES = 3
Row = dict[str, Any]


def example(name: str, call: str, device: str) -> Example:
    """Return an example call with float32 tensors; the LSTM is as wide as all heads together."""
    given = CALLS[call]
    width = given["D"] * given["H"] if name == "lstm" else given["D"]
    sizes = {**given, "K": given["D"], "V": given["D"], "D": width}
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(given["T"], given["B"], generator=generator) < RESETS.get(call, 0.0)
    return make(OPERATIONS[name], sizes, mask).to(torch.float32).to(torch.device(device))


def forward(function: Callable[..., Any], call: Sequence[Any], inputs: Sequence[Tensor]) -> Run:
    """Return a forward call; `surroundings` disables gradients, as models do when acting."""
    return partial(function, *call)


def forward_backward(
    function: Callable[..., Any], call: Sequence[Any], inputs: Sequence[Tensor]
) -> Run:
    """Return a call followed by the gradients of its first output with respect to all inputs."""
    for tensor in inputs:
        tensor.requires_grad_()
    with torch.no_grad():
        grad = torch.ones_like(function(*call)[0])

    def run() -> None:
        torch.autograd.grad(function(*call)[0], inputs, grad, allow_unused=True)

    return run


MODES = {"forward": forward, "forward+backward": forward_backward}


def timed(function: Callable[..., Any], case: Example, mode: str) -> Run:
    """Return a call in this mode; its arguments are prepared beforehand, as in a core.

    Options have their defaults.
    """
    signature = case.operation.signature
    options = list(signature.options.values())
    call = signature.unflatten(case.tensors, options)[: -len(options) or None]
    return MODES[mode](function, call, [t for t in case.tensors if t.is_floating_point()])


@contextmanager
def surroundings(name: str, mode: str) -> Iterator[None]:
    """Force backend `name`, if there is one; enable gradients unless `mode` is "forward"."""
    forced = kernels.backend(name) if name in BACKENDS else nullcontext()
    with forced, torch.set_grad_enabled(mode != "forward"):
        yield


def contenders(name: str, call: str, mode: str, device: str) -> tuple[dict[str, Run], list[Row]]:
    """Return the call on each backend that can compute it, and rows with reasons for the others.

    Run the calls inside `surroundings`.
    """
    runs: dict[str, Run] = {}
    absent: list[Row] = []
    for backend, implementation in OPERATIONS[name].backends.items():
        case = example(name, call, device)
        sizes = case.operation.signature.sizes(case.tensors)
        request = case.operation.request(torch.device(device), torch.float32, sizes)
        reason = implementation.why_not(request)
        if backend == "reference" and mode != "forward":
            reason = too_much_memory(case, device)
        if reason is None:
            runs[backend] = timed(case.operation, case, mode)
        elif backend in ("reference", device):
            absent.append({"backend": backend, "absent": reason})
    return runs, absent


def too_much_memory(case: Example, device: str) -> str | None:
    """Return why the memory is too small for the loop's backward pass.

    None if the memory suffices or is unknown.
    """
    states = case.tensors[-len(case.operation.signature.state) :]
    steps = case.operation.signature.sizes(case.tensors)["T"]
    needed = KEPT_STATES * steps * sum(state.nbytes for state in states)
    memory = torch.cuda.mem_get_info()[1] if device == "cuda" else memory_bytes()
    if memory is None or needed < memory / 2:
        return None
    return f"its backward needs about {needed / 1e9:.0f} GB; this machine has {memory / 1e9:.0f} GB"


def compiled(
    name: str, call: str, mode: str, device: str, most_steps: int
) -> tuple[dict[str, Run], list[Row]]:
    """Return the reference under torch.compile: the whole loop, and one step called in a loop.

    The rows give the compilation time in seconds, or the reason why nothing was measured.
    """
    signature, steps = OPERATIONS[name].signature, CALLS[call]["T"]
    reference = signature.reference
    ways: dict[str, Callable[..., Any]] = {}
    rows: list[Row] = []
    if steps <= most_steps:
        ways[COMPILED] = torch.compile(reference)
    else:
        reason = f"the compiler unrolls {steps} steps: this takes minutes, see --compile-steps"
        rows.append({"backend": COMPILED, "absent": reason})
    if steps > 1:
        ways[COMPILED_STEP] = _loop(torch.compile(reference), len(signature.inputs))
    runs: dict[str, Run] = {}
    for way, chosen in ways.items():
        case = example(name, call, device)
        run, row = _compile(way, partial(timed, chosen, case, mode), mode)
        rows.append(row)
        runs |= {way: run} if run else {}
    return runs, rows


def _loop(step: Callable[..., Any], inputs: int) -> Callable[..., Any]:
    """Return a loop over many steps that calls `step` for each single row."""

    def unrolled(*call: Any) -> tuple[Tensor, Any]:
        rows, (state, *weights) = call[: inputs + 1], call[inputs + 1 :]
        outputs = []
        # Split once: with a slice per step, each slice's gradient would be as large as all rows.
        for row in zip(*(each.split(1) for each in rows), strict=True):
            y, state = step(*row, state, *weights)
            outputs.append(y)
        return torch.cat(outputs), state

    return unrolled


def _compile(way: str, prepare: Callable[[], Run], mode: str) -> tuple[Run | None, Row]:
    """Make the first call, which compiles. `prepare` may call and so compile the function, too."""
    began = time.perf_counter()
    try:
        with surroundings(way, mode):
            run = prepare()
            run()
    except Exception as error:  # the compiler may raise anything; the table shows the reason
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return None, {"backend": way, "absent": f"does not compile: {first_line[:90]}"}
    return run, {"backend": way, "compile_s": time.perf_counter() - began}
