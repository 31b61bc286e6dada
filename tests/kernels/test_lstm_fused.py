"""The LSTM through PyTorch's kernel, in one call whatever the resets, against the reference."""

from collections.abc import Callable

import pytest
import torch
from kernel_cases import assert_agree, example, truth
from torch.backends import cudnn

from fastweights.cores import build_core
from fastweights.kernels.lstm import fused
from fastweights.kernels.machinery import dispatch
from fastweights.kernels.machinery.example import Example
from fastweights.kernels.machinery.signature import without_waiting
from fastweights.kernels.registry import OPERATIONS
from fastweights.kernels.segments import exact, pieces


@pytest.fixture
def through_pytorch(monkeypatch):
    """Register the GPU's backend on this device."""
    backend = dispatch.PyTorch(OPERATIONS["lstm"].signature, fused.unroll)
    monkeypatch.setitem(OPERATIONS["lstm"].backends, "chunked", backend)


def run(case: Example) -> dict[str, torch.Tensor]:
    with dispatch.backend("chunked"):
        return case.run_with_gradients()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [1, 5, 32])
def test_outputs_and_gradients_with_every_kind_of_reset(through_pytorch, size, dtype):
    case = example("lstm", size)
    tolerance = 1e-12 if dtype is torch.float64 else 1e-5
    assert_agree(run(case.to(dtype)), truth(case), tolerance)


@pytest.mark.parametrize("resets", [(), (0,), (3,), (0, 3, 4, 6), range(7)])
def test_one_call_whatever_the_resets(monkeypatch, resets):
    case, counted = example("lstm", 4), []
    z, is_first = case.tensors[0], torch.zeros(7, 5, dtype=torch.bool)
    for row in resets:
        is_first[row, row % 5] = True
    lstm = torch.lstm
    monkeypatch.setattr(torch, "lstm", lambda *call: counted.append(1) or lstm(*call))
    weights, _, hidden, cell = case.tensors[1:]
    call = z, is_first, fused.LSTMState(hidden, cell), weights
    y, state = fused.unroll(*call)
    right, right_state = fused.reference.unroll(*call)
    assert len(counted) == 1
    torch.testing.assert_close((y, *state), (right, *right_state))


def test_where_the_host_may_not_wait_it_is_the_reference(monkeypatch):
    case, called, lstm = example("lstm", 4), [], torch.lstm
    z, (weights, _, hidden, cell) = case.tensors[0], case.tensors[1:]
    call = z, torch.zeros(7, 5, dtype=torch.bool), fused.LSTMState(hidden, cell), weights
    monkeypatch.setattr(torch, "lstm", lambda *given: called.append(1) or lstm(*given))
    with without_waiting():
        by_reference = fused.unroll(*call)
        assert not called
    torch.testing.assert_close(fused.unroll(*call), by_reference)
    assert called


def with_backward(y: torch.Tensor, act: Callable[[], None]) -> torch.Tensor:
    """Return a copy of `y` whose backward pass calls `act`."""

    class Acting(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y.clone()

        @staticmethod
        def backward(ctx, grad):
            act()
            return grad

    return Acting.apply(y)


@pytest.mark.parametrize("allowed", [False, True])
def test_cudnn_is_used_without_tf32_in_both_passes(through_pytorch, monkeypatch, allowed):
    """The process's flags are restored after each pass."""
    lstm, seen = torch.lstm, []

    def flags() -> tuple[bool, ...]:
        has_tf32 = cudnn.rnn.fp32_precision == "tf32"
        return cudnn.enabled, has_tf32, cudnn.benchmark, cudnn.deterministic

    def watched(*call):
        seen.append(flags())
        y, hidden, cell = lstm(*call)
        return with_backward(y, lambda: seen.append(flags())), hidden, cell

    monkeypatch.setattr(torch, "lstm", watched)
    monkeypatch.setattr(cudnn, "allow_tf32", allowed)
    monkeypatch.setattr(cudnn, "benchmark", True)
    before = flags()
    assert_agree(run(example("lstm", 4)), truth(example("lstm", 4)), 1e-12)
    assert seen == [(True, False, True, False)] * 2
    assert flags() == before and cudnn.allow_tf32 is allowed


def test_a_forward_pass_within_a_backward_pass_leaves_tf32_off(through_pytorch, monkeypatch):
    """Checkpointing repeats forward passes there."""
    lstm, seen = torch.lstm, []

    def repeat() -> None:
        with exact():
            pass
        seen.append(cudnn.rnn.fp32_precision)

    def repeated(*call):
        y, hidden, cell = lstm(*call)
        return with_backward(y, repeat), hidden, cell

    monkeypatch.setattr(torch, "lstm", repeated)
    monkeypatch.setattr(cudnn, "allow_tf32", True)
    run(example("lstm", 4))
    assert set(seen) == {"ieee"} and cudnn.allow_tf32


@pytest.mark.parametrize("name", ["gru", "elman"])
def test_precisions_that_the_user_chose_stay(name):
    """PyTorch refuses to read its older setting once convolutions have another one."""
    cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = "ieee", "tf32"
    core = build_core(name, 3, width=4)
    core(torch.randn(5, 2, 3))[0].sum().backward()
    assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == ("ieee", "tf32")


def test_pieces_are_found_on_the_cpu_whatever_the_default_device():
    is_first = torch.zeros(6, 2, dtype=torch.bool)
    is_first[3, 1] = True
    expected = pieces(is_first)
    with torch.device("meta"):
        found = pieces(is_first)
    assert all(map(torch.equal, found, expected))


def test_tf32_is_restored_after_a_backward_pass_that_raised(through_pytorch, monkeypatch):
    """Such a pass has no end; the next one ends for it."""
    lstm, is_broken = torch.lstm, [True]

    def fail() -> None:
        if is_broken.pop():
            raise RuntimeError("out of memory")

    def broken(*call):
        y, hidden, cell = lstm(*call)
        return with_backward(y, fail), hidden, cell

    monkeypatch.setattr(torch, "lstm", broken)
    monkeypatch.setattr(cudnn, "allow_tf32", True)
    with pytest.raises(RuntimeError, match="out of memory"):
        run(example("lstm", 4))
    is_broken += [False] * 9
    run(example("lstm", 4))
    assert cudnn.allow_tf32


@pytest.mark.parametrize("axis", ["T", "B"])
def test_nothing_to_do(through_pytorch, axis):
    case = example("lstm", 4)
    case.tensors[:] = [
        tensor.narrow(argument.axes.index(axis), 0, 0) if axis in argument.axes else tensor
        for tensor, argument in zip(case.tensors, case.operation.signature.arguments, strict=True)
    ]
    assert_agree(run(case), truth(case), 0.0)


def test_gpus_get_it_and_other_devices_do_not():
    lstm = OPERATIONS["lstm"]
    backend, sizes = lstm.backends["cuda"], lstm.signature.check(example("lstm", 4).tensors)
    assert backend.function.__name__ == fused.unroll.__name__ and backend.device == "cuda"

    def reason(device: str) -> str | None:
        return backend.why_not(lstm.request(torch.device(device), torch.float32, sizes))

    assert reason("cpu") == "the tensors are on cpu"
    if not torch.cuda.is_available():
        assert reason("cuda") == "torch sees no CUDA device"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_cudnn_agrees_with_the_reference_in_float64():
    case = example("lstm", 32)
    single = case.to(torch.float32).to(torch.device("cuda"))
    with dispatch.backend("cuda"):
        found = single.run_with_gradients()
    assert_agree({name: t.cpu() for name, t in found.items()}, truth(case), 1e-5)
