"""The benchmarks' baseline, `rdn_step_by_step`: it computes the same results, and it compiles."""

import pytest
import torch
from cuda_cases import BATCH, CASES, HEADS, RESETS, expected, largest_relative_error, make
from cuda_needs import need_nvrtc

from benchmarks import rdn_step_by_step as baseline
from benchmarks.gpu_peers import launches
from fastweights.kernels.cuda.registers import usage
from fastweights.kernels.machinery.example import make as make_call
from fastweights.kernels.registry import OPERATIONS

CASE = CASES["recurrent_delta_rule"]


@pytest.mark.parametrize(("T", "size"), [(7, 8), (5, 5), (3, 32)])
@pytest.mark.parametrize("resets", ["never", "random", "always"])
def test_it_equals_the_reference_with_all_gradients(shim, T, size, resets):
    tensors, grads = make(CASE, T, BATCH, HEADS, size, size)
    is_first = RESETS[resets](T, BATCH)
    wanted = expected(CASE, tensors, is_first, grads)
    *inputs, weights, output = (tensor.detach().float() for tensor in tensors.values())
    call = (*inputs, is_first, weights, output)
    y, final, final_output, *saved = baseline.forward(*call)
    found = baseline.backward(*call, *saved, *(grad.float() for grad in grads))
    results = [y, final, final_output, *found]
    for (name, right), result in zip(wanted.items(), results, strict=True):
        assert result.shape == right.shape, name
        assert largest_relative_error(result, right) <= 1e-5, name


@pytest.mark.parametrize("architecture", ["sm_75", "sm_120"])
def test_it_compiles_without_spills(architecture):
    need_nvrtc()
    for used in usage(baseline.SOURCE, baseline.HEAD_SIZES[-1], architecture).values():
        assert used.spilled_bytes == used.stack_bytes == 0


@pytest.mark.parametrize("mode", ["forward", "forward+backward"])
def test_the_benchmark_launches_ours_and_the_baseline_alike(shim, mode):
    """Both pairs of functions get the same calls; only the capture as a graph is left out."""
    sizes = dict.fromkeys("TBHKVD", 3)
    ran = []
    for pair in (CASE.pair, baseline):
        case = make_call(OPERATIONS[CASE.operation], sizes).to(torch.float32)
        run = launches(pair.forward, pair.backward, mode, case)
        launched = shim.launched = []
        run()
        ran.append([kernel.name for kernel in launched])
    steps = sizes["T"]
    ways = ["forward"] if mode == "forward" else ["forward", "backward"]
    assert ran == [ways, [way for way in ways for _ in range(steps)]]
