"""Launching CUDA kernels: arguments, refusals, and messages on a machine without a GPU."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cuda_cases import CASES, RESETS, make

from fastweights.kernels.cuda import compiler, launch
from fastweights.kernels.cuda.arguments import Sizes, pack, padded, views
from fastweights.kernels.cuda.support import why_not
from fastweights.kernels.machinery import cache, signature
from fastweights.kernels.machinery.request import Request

GPU = torch.device("cuda:0")


def test_head_sizes_are_padded():
    assert [padded(size) for size in (1, 8, 9, 17, 32, 33, 64)] == [8, 8, 16, 32, 32, 64, 64]


def test_arguments_are_sizes_then_addresses_and_strides_then_addresses():
    given, own = torch.zeros(5, 3, 2)[:, ::2], torch.zeros(4)
    words = list(pack(Sizes(1, 2, 3, 4, 5, 6, 7), [given], [own]))
    assert words == [1, 2, 3, 4, 5, 6, 7, given.data_ptr(), 6, 4, 1, 0, own.data_ptr()]


def test_weights_are_shared_by_the_batch():
    (view,) = views(("H", "V", "K"), torch.zeros(4, 5, 6), 3)
    assert view.shape == (3, 4, 5, 6)
    assert view.stride() == (0, 30, 6, 1)


def test_an_axis_of_a_number_is_taken_apart():
    tensor = torch.arange(24.0).view(2, 1, 2, 3, 2)
    parts = views(("T", "B", "H", "3", "K"), tensor, 1)
    assert [part.shape for part in parts] == [(2, 1, 2, 2)] * 3
    assert torch.equal(parts[1], tensor[:, :, :, 1])


def test_cpu_tensors_are_refused():
    case = CASES["linear_attention"]
    tensors, _ = make(case, 2, 1, 1, 4, 4)
    *inputs, state = (tensor.float() for tensor in tensors.values())
    with pytest.raises(ValueError, match="linear_attention_forward: expected CUDA tensors"):
        case.pair.forward(*inputs, RESETS["never"](2, 1), state)


@pytest.mark.parametrize(
    ("device", "dtype", "sizes", "reason"),
    [
        ("cpu", torch.float32, {"K": 4, "V": 4}, "the tensors are on cpu"),
        ("cuda", torch.float64, {"K": 4, "V": 4}, "the state is torch.float64"),
        ("cuda", torch.float32, {"K": 65, "V": 4}, "head size K = 65 is not in 1..64"),
        ("cuda", torch.float32, {"D": 65}, "head size D = 65 is not in 1..64"),
        ("cuda", torch.float32, {"T": 2**20, "B": 2**9, "H": 2}, "= 1,073,741,824 is more than"),
    ],
)
def test_a_call_that_no_kernel_takes_has_a_reason(device, dtype, sizes, reason):
    request = Request(torch.device(device), dtype, signature.Sizes(sizes), {})
    assert reason in why_not(request)


def test_a_machine_without_a_gpu_or_without_the_compiler_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert launch.unavailable() == "torch sees no CUDA device"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    assert "pip install -e '.[cuda]'" in launch.unavailable()
    monkeypatch.setattr(launch, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert "compute capability (7, 0) is below" in launch.unavailable()


def test_what_was_kept_and_is_damaged_is_compiled_anew(monkeypatch, tmp_path):
    """A full disk may have left half a file, with which no run could start."""

    def load(cubin: bytes, symbol: str) -> launch._Loaded:
        if cubin != b"whole":
            raise RuntimeError("CUDA_ERROR_INVALID_IMAGE")
        return launch._Loaded(symbol, 0, None)

    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(compiler, "compiler_version", lambda: "13.0")
    monkeypatch.setattr(compiler, "compile_source", lambda *made_for: (b"whole", ""))
    monkeypatch.setattr(launch, "_loaded", load)
    launch._load.cache_clear()
    kernel = launch.Kernel(compiler.source_file("delta_rule"), "forward", (1, 4))
    kept = tmp_path / compiler.cubin_name(kernel.source, 8, "sm_90")
    kept.write_bytes(b"half")
    assert launch._load(kernel, 8, "sm_90").function == "delta_rule_forward"
    assert kept.read_bytes() == b"whole"
    launch._load.cache_clear()


def test_threads_load_kernels_one_after_the_other(monkeypatch):
    loading, overlapped = threading.Lock(), []

    def load(*call) -> None:
        overlapped.append(not loading.acquire(blocking=False))
        time.sleep(0.02)
        if not overlapped[-1]:
            loading.release()

    monkeypatch.setattr(launch, "load", load)
    sizes = (8, 16, 32, 64)
    kernel = launch.Kernel(compiler.source_file("delta_rule"), "forward", (1, 4))
    with ThreadPoolExecutor(len(sizes)) as threads:
        asked = [threads.submit(launch.why_not_loaded, (kernel,), size, GPU) for size in sizes]
        assert [one.result() for one in asked] == [None] * len(sizes)
    assert overlapped == [False] * len(sizes)
    launch.why_not_loaded.cache_clear()


def test_the_cache_is_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "fastweights"
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "own"))
    assert cache.cache_folder() == tmp_path / "own"
