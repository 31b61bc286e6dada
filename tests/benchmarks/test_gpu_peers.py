"""The GPU contenders of the kernels' benchmark, as far as a CPU can check them."""

import sys
from types import ModuleType

import pytest
import torch
from rich.console import Console

from benchmarks import gpu_peers, kernel_calls, rdn_step_by_step
from benchmarks.gpu_peers import CAPTURED, STEP_BY_STEP, against_foretold, fla, peers
from benchmarks.kernel_tables import foretold
from fastweights.kernels.delta_rule import DeltaRuleState, reference


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kernel_calls.CALLS, "rl", {"T": 5, "B": 2, "H": 2, "D": 4})
    monkeypatch.setattr(kernel_calls, "RESETS", {})


@pytest.mark.parametrize("mode", kernel_calls.MODES)
def test_flash_linear_attention_gets_batches_first_and_no_scale(mode, monkeypatch):
    seen = []

    def recurrence(q, k, v, beta, scale, initial_state, output_final_state):
        rows = [tensor.transpose(0, 1).float() for tensor in (q, k, v, beta)]
        never = torch.zeros(rows[0].shape[:2], dtype=torch.bool)
        y, state = reference.unroll(*rows, never, DeltaRuleState(initial_state))
        seen.append((scale, output_final_state, q.dtype, y))
        return y.transpose(0, 1), state

    module = ModuleType("fla.ops.delta_rule")
    module.fused_recurrent_delta_rule = module.chunk_delta_rule = recurrence
    monkeypatch.setitem(sys.modules, "fla", ModuleType("fla"))
    monkeypatch.setitem(sys.modules, "fla.ops", ModuleType("fla.ops"))
    monkeypatch.setitem(sys.modules, "fla.ops.delta_rule", module)
    case = kernel_calls.example("delta_rule", "rl", "cpu")
    expected = case.run()[0]
    for kind, dtype in gpu_peers.FLA_DTYPES.items():
        fla(kind, mode, case)()
        assert seen[-1][:3] == (1.0, True, dtype)
        torch.testing.assert_close(seen[-1][3], expected, atol=0.05, rtol=0.05)


def test_missing_peers_give_the_reason():
    runs, rows = peers("delta_rule", "rl", "forward+backward", "cpu")
    reasons = {row["backend"]: row["absent"] for row in rows}
    assert set(runs) == {"cuDNN LSTM"}  # PyTorch's LSTM runs on any device
    runs["cuDNN LSTM"]()
    if "fla" not in sys.modules:
        assert reasons["fla chunk"] == reasons["fla fused_recurrent"] == "not installed: fla"
    assert "expected CUDA tensors" in reasons[CAPTURED]
    assert STEP_BY_STEP not in reasons
    assert STEP_BY_STEP in {
        r["backend"] for r in peers("recurrent_delta_rule", "rl", "forward", "cpu")[1]
    }


@pytest.mark.parametrize("mode", kernel_calls.MODES)
def test_the_baseline_writes_for_a_backward_where_there_is_one(mode, monkeypatch):
    written = []

    def launch(kernel, sizes, given, own):
        if kernel.name == "forward":
            written.append([tensor is not None for tensor in own])

    monkeypatch.setattr(rdn_step_by_step, "launch", launch)
    # There is no graph to capture on a CPU.
    monkeypatch.setattr(gpu_peers, "captured", gpu_peers.launches)
    runs, _ = peers("recurrent_delta_rule", "rl", mode, "cpu")
    runs[STEP_BY_STEP]()
    saves = mode != "forward"
    assert written == [[True] * 3 + [saves] * rdn_step_by_step.SAVED] * len(written) != []


def test_captured_launches_are_compared_with_the_estimates(monkeypatch):
    monkeypatch.setitem(kernel_calls.CALLS, "rl", {"T": 50, "B": 32, "H": 4, "D": 32})
    row = {"operation": "recurrent_delta_rule", "size": "rl", "mode": "forward"}
    rows = [
        row | {"backend": CAPTURED, "median_ms": 0.025},
        row | {"backend": "cuda", "median_ms": 9.0},
    ]
    rows.append(row | {"mode": "forward+backward", "backend": CAPTURED, "median_ms": 0.05})
    rows.append(
        {"operation": "lstm", "size": "rl", "mode": "forward", "backend": CAPTURED, "absent": "x"}
    )
    forward, both = against_foretold(rows, gigahertz=1.9)
    assert forward["step_us"] == pytest.approx(0.5) and forward["estimated_us"] == 0.39
    assert forward["of_floor"] == pytest.approx(475 / 1.9e3 / 0.5)
    assert both["estimated_us"] == pytest.approx(0.93) and both["of_floor"] is None
    console = Console(width=120, record=True)
    console.print(foretold([forward, both], 1.9))
    assert "0.93" in console.export_text()
