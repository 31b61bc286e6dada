"""The kernels on a GPU: agreement with the float64 reference, streams, graphs, repeatability."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cuda_cases import (
    BATCH,
    CASES,
    HEADS,
    RESETS,
    WIDE,
    Case,
    Tensors,
    check,
    computed,
    make,
)
from cuda_needs import NEEDS_GPU
from delta_product_cases import DELTA_PRODUCTS, check_delta_product

pytestmark = [pytest.mark.gpu, NEEDS_GPU]
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
Call = tuple[Tensors, torch.Tensor, list[torch.Tensor]]


def call_on_gpu(case: Case, T: int, B: int, H: int, size: int, resets: str = "random") -> Call:
    tensors, grads = make(case, T, B, H, size, size)
    single = {name: tensor.float().cuda() for name, tensor in tensors.items()}
    return single, RESETS[resets](T, B).cuda(), [grad.float().cuda() for grad in grads]


def assert_same_bits(one: Tensors, other: Tensors) -> None:
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@EVERY_CASE
@pytest.mark.parametrize("size", [1, 3, 8, 17, 32])
@pytest.mark.parametrize("T", [1, 2, 7, 33, 456])
def test_sizes_and_lengths(case, size, T):
    check(case, T, size, size, RESETS["random"](T, BATCH), "cuda")


@EVERY_CASE
@pytest.mark.parametrize("resets", RESETS)
def test_resets(case, resets):
    check(case, 50, 32, 32, RESETS[resets](50, BATCH), "cuda")


@EVERY_CASE
def test_odd_strides(case):
    check(case, 5, 6, 6, RESETS["middle"](5, BATCH), "cuda", strided=True)


@EVERY_CASE
def test_no_rows(case):
    check(case, 0, 4, 4, RESETS["never"](0, BATCH), "cuda")


@pytest.mark.parametrize(("name", "K", "V"), WIDE)
def test_wide_heads_and_unequal_sizes(name, K, V):
    check(CASES[name], 40, K, V, RESETS["random"](40, BATCH), "cuda")


@pytest.mark.parametrize("S", [1, 2, 3])
@pytest.mark.parametrize(("T", "K", "V"), [(1, 1, 1), (33, 8, 8), (20, 17, 17), (10, 33, 12)])
@pytest.mark.parametrize("name", DELTA_PRODUCTS)
def test_several_writes_a_step(name, T, K, V, S):
    check_delta_product(name, T, S, K, V, RESETS["random"](T, BATCH), "cuda")


@pytest.mark.parametrize("resets", RESETS)
@pytest.mark.parametrize("name", DELTA_PRODUCTS)
def test_resets_before_several_writes(name, resets):
    check_delta_product(name, 20, 3, 16, 16, RESETS[resets](20, BATCH), "cuda")


@EVERY_CASE
def test_repeats_bit_by_bit(case):
    call = call_on_gpu(case, 50, 32, 4, 32)
    first = computed(case, *call)
    for _ in range(3):
        assert_same_bits(computed(case, *call), first)


@EVERY_CASE
def test_more_blocks_than_a_y_axis_holds(case):
    single, is_first, grads = call_on_gpu(case, 1, 70_000, 1, 4)
    for name, tensor in computed(case, single, is_first, grads).items():
        assert torch.isfinite(tensor).all(), name


@EVERY_CASE
def test_two_streams(case):
    """Two calls in parallel streams give the same results as alone."""
    calls = [call_on_gpu(case, T, 8, HEADS, 32) for T in (60, 90)]
    alone = [computed(case, *call) for call in calls]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    together = []
    for stream, call in zip(streams, calls, strict=True):
        with torch.cuda.stream(stream):
            together.append(computed(case, *call))
    torch.cuda.synchronize()
    for one, other in zip(alone, together, strict=True):
        assert_same_bits(one, other)


@EVERY_CASE
def test_launches_in_the_current_stream(case):
    """Inputs written in the same stream, behind a long delay, are in the result."""
    single, is_first, grads = call_on_gpu(case, 5, 2, HEADS, 16)
    wanted = computed(case, single, is_first, grads)
    late = {name: torch.full_like(tensor, float("nan")) for name, tensor in single.items()}
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        for name, tensor in single.items():
            late[name].copy_(tensor)
        actual = computed(case, late, is_first, grads)
        torch.cuda.current_stream().synchronize()
    assert_same_bits(wanted, actual)


@EVERY_CASE
def test_graph_capture(case):
    """Capture a graph once and replay it with other numbers in the same tensors."""
    single, is_first, grads = call_on_gpu(case, 20, 4, HEADS, 32)
    wanted = computed(case, single, is_first, grads)
    static = {name: torch.rand_like(tensor) for name, tensor in single.items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        computed(case, static, is_first, grads)  # loads the kernels
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = computed(case, static, is_first, grads)
    for name, tensor in single.items():
        static[name].copy_(tensor)
    graph.replay()
    torch.cuda.synchronize()
    assert_same_bits(wanted, captured)


@EVERY_CASE
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_device_than_the_current(case):
    single, is_first, grads = call_on_gpu(case, 7, 3, HEADS, 16)
    wanted = computed(case, single, is_first, grads)
    moved = {name: tensor.to("cuda:1") for name, tensor in single.items()}
    actual = computed(case, moved, is_first.to("cuda:1"), [grad.to("cuda:1") for grad in grads])
    assert torch.cuda.current_device() == 0
    assert_same_bits(wanted, {name: tensor.to("cuda:0") for name, tensor in actual.items()})


@EVERY_CASE
def test_in_a_thread_that_torch_has_not_used(case):
    """Threads of autograd, too, have no current CUDA context at first."""
    call = call_on_gpu(case, 7, 3, HEADS, 16)
    wanted = computed(case, *call)
    with ThreadPoolExecutor(1) as threads:
        assert_same_bits(wanted, threads.submit(computed, case, *call).result())
