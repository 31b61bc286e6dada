"""Export of an agent as one ONNX file: a single step, with the core's state as inputs and outputs.

    policy_logits, value, next_*  =  agent(frame, reward, is_first, last_action, state_*)

The batch axis B of every input is dynamic. An all-zero state is fresh; `is_first[b]` resets stream
b before its row is read. The file runs without any code from this project.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fastweights.agents import Network
from fastweights.host import install_command, one_line, write_bytes
from fastweights.kernels import State, backend, refilled, tensors_of

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
ROW = ("frame", "reward", "is_first", "last_action")
CLOSE = 1e-3  # largest difference to PyTorch, relative to the largest output


class Exported(NamedTuple):
    """The names in the file, and the difference between ONNX Runtime's results and PyTorch's."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    difference: float  # largest absolute difference over the checked outputs


class _Step(nn.Module):
    """`Network.step` with the state's tensors as further arguments."""

    def __init__(self, network: Network):
        super().__init__()
        self.network = network

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        row, state = tensors[: len(ROW)], tensors[len(ROW) :]
        form = self.network.initial_state(1)
        output, after = self.network.step(*row, refilled(form, state))
        return *output, *tensors_of(after)


def named_tensors(state: State, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a state with its path, such as `1_fast_weights` in the second layer."""
    names = getattr(state, "_fields", range(len(state)))
    for part, inner in zip(names, state, strict=True):
        path = f"{name}_{part}" if name else str(part)
        if isinstance(inner, Tensor):
            yield path, inner
        else:
            yield from named_tensors(inner, path)


def write_onnx(network: Network, path: Path, facts: dict[str, Any]) -> Exported:
    """Write one step of `network` as an ONNX file, and check it with ONNX Runtime.

    Args:
        network: on the CPU; its weights are stored, and its convolutions computed, in float32.
        path: the file to write; its folder is created if missing.
        facts: stored in the file's metadata, as JSON under the name `fastweights`.

    Raises:
        ValueError: a package is missing, the core has no ONNX form, or ONNX Runtime's results
            differ from PyTorch's. In each case nothing is written.
        OSError: the file cannot be written.
    """
    check_packages()
    names = tuple(name for name, _ in named_tensors(network.initial_state(1)))
    inputs = (*ROW, *(f"state_{name}" for name in names))
    outputs = ("policy_logits", "value", *(f"next_{name}" for name in names))
    step = _Step(_in_float32(network).eval())
    with backend("reference"), torch.no_grad():
        program = _traced(step, _example(network, 2), inputs, outputs)
        model = program.model_proto
        entry = model.metadata_props.add()
        entry.key, entry.value = "fastweights", json.dumps(facts)
        content = model.SerializeToString()
        difference = _difference(content, step, _example(network, 3), inputs)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)
    return Exported(inputs, outputs, difference)


def check_packages(is_there: Callable[[str], object] = find_spec) -> None:
    """Raise a `ValueError` that names the missing packages that an export needs."""
    if missing := [name for name in PACKAGES if not is_there(name)]:
        raise ValueError(f"an ONNX file needs {', '.join(missing)}: {install_command('onnx')}")


def _in_float32(network: Network) -> Network:
    """Return a copy that computes convolutions in float32 rather than bfloat16 (used for speed)."""
    exact = Network(replace(network.config, precision="float32"))
    exact.load_state_dict(network.state_dict())
    return exact


def _example(network: Network, batch: int) -> tuple[Tensor, ...]:
    """Return a random row and state; one stream is reset."""
    draw = torch.Generator().manual_seed(batch)
    shape = (batch, *network.config.frame_shape)
    if len(shape) == 4:
        frame = torch.randint(256, shape, generator=draw, dtype=torch.uint8)
    else:
        frame = torch.randn(shape, generator=draw)
    leaves = tensors_of(network.initial_state(batch))
    return (
        frame,
        torch.randn(batch, generator=draw),
        torch.arange(batch) == 0,
        torch.arange(batch) % network.config.num_actions,
        *(leaf + 0.1 * torch.rand(leaf.shape, generator=draw) for leaf in leaves),
    )


def _traced(
    step: _Step, example: tuple[Tensor, ...], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> Any:
    batch = {0: torch.export.Dim("batch")}
    shapes = (tuple(batch for _ in example),)  # `*tensors` is one argument
    how = {"input_names": inputs, "output_names": outputs, "dynamic_shapes": shapes}
    core = step.network.config.core
    try:
        with _quietly():
            return torch.onnx.export(step, example, dynamo=True, verbose=False, **how)
    except Exception as error:  # a user's core can make the tracer raise anything
        reason = one_line(str(error).partition("## Exception summary")[2] or str(error))
        raise ValueError(
            f"the core {core!r} cannot be exported to ONNX: PyTorch's exporter cannot trace its "
            f"step ({reason[:200].strip()}); --format safetensors works with any core"
        ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress the exporter's progress and advice."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _difference(
    content: bytes, step: _Step, example: tuple[Tensor, ...], inputs: tuple[str, ...]
) -> float:
    """Return the largest difference of ONNX Runtime's outputs from PyTorch's, for another batch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    given = {name: tensor.numpy() for name, tensor in zip(inputs, example, strict=True)}
    used = {one.name for one in session.get_inputs()}
    theirs = session.run(None, {name: given[name] for name in inputs if name in used})
    largest = 0.0
    for ours, other in zip(step(*example), theirs, strict=True):
        expected = ours.numpy()
        apart = float(np.abs(expected - other).max(initial=0))
        if not apart <= CLOSE * max(1.0, float(np.abs(expected).max(initial=0))):
            raise ValueError(
                f"the results of ONNX Runtime and PyTorch differ by {apart:.2g} for the core "
                f"{step.network.config.core!r}: no file was written"
            )
        largest = max(largest, apart)
    return largest
