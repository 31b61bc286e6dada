"""The calls that `benchmarks/kernels.py` times: sizes, laws, backends, and what cannot be timed."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

import kernels
from benchmarks.timing import Run
from kernels.dispatch import BACKENDS
from kernels.example import Example, make
from kernels.registry import OPERATIONS

CALLS = {
    "rl": {"T": 50, "B": 32, "H": 4, "D": 32},
    "code": {"T": 456, "B": 64, "H": 16, "D": 16},
    "lm": {"T": 256, "B": 96, "H": 8, "D": 16},
    "acting1": {"T": 1, "B": 1, "H": 4, "D": 32},
    "acting32": {"T": 1, "B": 32, "H": 4, "D": 32},
}
SIZES = {"rl": ("rl",), "code": ("code",), "lm": ("lm",), "act": ("acting1", "acting32")}
RESETS = {"rl": 0.02}
COMPILED = "torch.compile"
# A step of the loop keeps what it computes for its backward: about three times its state.
KEPT_STATES = 3
Row = dict[str, Any]


def example(name: str, call: str, device: str) -> Example:
    """A call of float32 tensors; the LSTM is as wide as all heads together."""
    given = CALLS[call]
    width = given["D"] * given["H"] if name == "lstm" else given["D"]
    sizes = {**given, "K": given["D"], "V": given["D"], "D": width}
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(given["T"], given["B"], generator=generator) < RESETS.get(call, 0.0)
    return make(OPERATIONS[name], sizes, mask).to(torch.float32).to(torch.device(device))


def forward(law: Callable[..., Any], call: Sequence[Any], inputs: Sequence[Tensor]) -> Run:
    """A call without gradients."""
    without_gradients = torch.no_grad()

    def run() -> None:
        with without_gradients:
            law(*call)

    return run


def forward_backward(law: Callable[..., Any], call: Sequence[Any], inputs: Sequence[Tensor]) -> Run:
    """A call, and the gradients of what it returns first, of all inputs."""
    for tensor in inputs:
        tensor.requires_grad_()
    with torch.no_grad():
        grad = torch.ones_like(law(*call)[0])

    def run() -> None:
        torch.autograd.grad(law(*call)[0], inputs, grad, allow_unused=True)

    return run


MODES = {"forward": forward, "forward+backward": forward_backward}


def timed(law: Callable[..., Any], case: Example, mode: str) -> Run:
    """Arguments are put together beforehand, as a core has them; options keep their defaults."""
    signature = case.operation.signature
    options = list(signature.options.values())
    call = signature.unflatten(case.tensors, options)[: -len(options) or None]
    return MODES[mode](law, call, [t for t in case.tensors if t.is_floating_point()])


def in_backend(name: str) -> AbstractContextManager[None]:
    """Where a contender's samples are taken; those that are no backend need nothing forced."""
    return kernels.backend(name) if name in BACKENDS else nullcontext()


def contenders(name: str, call: str, mode: str, device: str) -> tuple[dict[str, Run], list[Row]]:
    """What can do the call, by backend (to be run `in_backend`), and why each other cannot."""
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
    """Why the loop's backward cannot be measured here; None if it can."""
    states = case.tensors[-len(case.operation.signature.state) :]
    steps = case.operation.signature.sizes(case.tensors)["T"]
    needed = KEPT_STATES * steps * sum(state.nbytes for state in states)
    if device == "cuda":
        memory = torch.cuda.mem_get_info()[1]
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed < memory / 2:
        return None
    return (
        f"keeps about {needed / 1e9:.0f} GB for its backward; this machine has {memory / 1e9:.0f}"
    )


def compiled(name: str, call: str, mode: str, device: str, most_steps: int) -> tuple[Run, Row]:
    """The reference under torch.compile, and its row so far: seconds to compile, or why not."""
    case = example(name, call, device)
    steps = CALLS[call]["T"]
    if steps > most_steps:
        reason = f"the compiler unrolls {steps} steps: minutes, see --compile-steps"
        return None, {"backend": COMPILED, "absent": reason}
    began = time.perf_counter()
    try:
        run = timed(torch.compile(case.operation.signature.law), case, mode)
        run()
    except Exception as error:  # whatever goes wrong inside the compiler belongs into the table
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return None, {"backend": COMPILED, "absent": f"does not compile: {first_line[:90]}"}
    return run, {"backend": COMPILED, "compile_s": time.perf_counter() - began}
