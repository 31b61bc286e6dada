"""The shim notices a missing barrier: if any barrier is removed, some result changes.

FASTWEIGHTS_ALL_TESTS=1 tests all sources, and heads above 32, whose warps share a matrix. Otherwise
a single source is tested.
"""

import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from cuda_cases import CASES, RESETS, Case, computed, make
from cuda_needs import EVERYTHING
from cuda_shim import ASCENDING, DESCENDING, Shim

from fastweights.kernels.cuda import compiler

BARRIER = re.compile(r"^ +(sync|__syncwarp|__syncthreads)\(\);", re.MULTILINE)
# These barriers are not missed, because lanes synchronise soon again: in a shuffle (a barrier in
# the shim, although CUDA does not promise it), and above 32 in the barriers of a sum over lanes.
BEHIND_A_SHUFFLE = {
    ("delta_rule/cuda.cu", 3),
    ("gated_delta_rule/cuda.cu", 3),
    ("recurrent_delta_rule/cuda.cu", 0),
    ("recurrent_delta_rule/cuda.cu", 5),
    ("delta_rnn/cuda.cu", 3),
    ("delta_lstm/cuda.cu", 4),
}
SHARED = {("cuda/matrix.cuh", number, 8) for number in (0, 1)}
SHARED |= {("cuda/rewind.cuh", number, 8) for number in (0, 1)}
SOURCES, SIZES = ["recurrent_delta_rule"], [8]
if EVERYTHING:
    # Without the last barrier of rewind.cuh: all its callers synchronise again before they write.
    SHARED |= {("cuda/rewind.cuh", 2, 33), ("cuda/warp.cuh", 1, 33), ("cuda/warp.cuh", 2, 33)}
    SOURCES += ["linear_attention", "delta_rule", "gated_delta_rule"]
    SOURCES += ["delta_rnn", "delta_lstm", "self_referential"]
    SIZES += [33]


def without_barrier(folder: Path, source: str, number: int) -> Path:
    """Copy the sources, without one barrier of `source`."""
    for path in [*compiler.KERNELS.glob("*/cuda.cu"), *compiler.HEADERS.glob("*.cuh")]:
        target = folder / path.relative_to(compiler.KERNELS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    text = (folder / source).read_text()
    start, end = list(BARRIER.finditer(text))[number].span()
    (folder / source).write_text(text[:start] + text[end:])
    return folder


def barriers(source: str) -> range:
    return range(len(BARRIER.findall((compiler.KERNELS / source).read_text())))


def depends_on_order(shim: Shim, case: Case, size: int) -> bool:
    tensors, grads = make(case, 4, 1, 2, size, size)
    single = {name: tensor.float() for name, tensor in tensors.items()}
    given, is_first = [grad.float() for grad in grads], RESETS["middle"](4, 1)
    runs = []
    for order in (ASCENDING, DESCENDING, 7, 8):
        shim.order = order
        try:
            runs.append(computed(case, single, is_first, given))
        except RuntimeError:  # lanes wait forever
            return True
    return any(
        not torch.equal(one[name], other[name]) for one, other in pairwise(runs) for name in one
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("source", "number"),
    [
        (source, number)
        for source in (f"{name}/cuda.cu" for name in SOURCES)
        for number in barriers(source)
        if (source, number) not in BEHIND_A_SHUFFLE
    ],
)
def test_every_barrier_is_missed(shim, tmp_path, source, number, size):
    case = next(case for name, case in CASES.items() if source.startswith(name.split("-")[0] + "/"))
    shim.sources = without_barrier(tmp_path, source, number)
    assert depends_on_order(shim, case, size)


@pytest.mark.parametrize(("source", "number", "size"), sorted(SHARED))
def test_every_shared_barrier_is_missed(shim, tmp_path, source, number, size):
    shim.sources = without_barrier(tmp_path, source, number)
    assert depends_on_order(shim, CASES["recurrent_delta_rule"], size)
