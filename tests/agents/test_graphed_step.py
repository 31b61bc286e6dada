"""The acting step as a CUDA graph: recorded once, then it answers as the network does.

Without a GPU the recording is played by the network itself, in the memory that was recorded.
"""

from typing import Any

import pytest
import torch

from agents.graphed_step import GraphedStep, record
from agents.network import Network, NetworkConfig
from cores import CORES
from kernels.cuda.launch import unavailable

STREAMS, STEPS, SIZE, ACTIONS = 3, 6, 5, 4
NEEDS_GPU = pytest.mark.skipif(unavailable() is not None, reason=f"{unavailable()}")


def network(core: str, device: str = "cpu", **options: Any) -> Network:
    config = NetworkConfig(
        frame_shape=(SIZE,),
        num_actions=ACTIONS,
        core=core,
        core_options=tuple(options.items()),
        feed_last_action=True,
    )
    return Network(config).to(device)


def rows(device: str = "cpu") -> list[tuple[torch.Tensor, ...]]:
    """What the network sees without its state; games begin within."""
    random = torch.Generator().manual_seed(1)
    return [
        tuple(
            part.to(device)[None]
            for part in (
                torch.randn(STREAMS, SIZE, generator=random),
                torch.randn(STREAMS, generator=random),
                torch.rand(STREAMS, generator=random) < 0.3,
                torch.randint(ACTIONS, (STREAMS,), generator=random),
            )
        )
        for _ in range(STEPS)
    ]


def tensors(nested: Any) -> list[torch.Tensor]:
    if isinstance(nested, torch.Tensor):
        return [nested]
    return [tensor for part in nested for tensor in tensors(part)]


@torch.no_grad()
def played(act: Any, net: Network, other: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """All it answers, with other weights for the second half of the steps."""
    state, answers = net.initial_state(STREAMS), []
    before = {name: weight.clone() for name, weight in net.state_dict().items()}
    for step, row in enumerate(rows(next(net.parameters()).device.type)):
        if step == STEPS // 2:
            net.load_state_dict(other)
        output, state = act(*row, state)
        answers.extend(tensors((output, state)))  # looked at when all has been played
    net.load_state_dict(before)
    return answers


def replayed_by_hand(call: Any, device: torch.device) -> tuple[Any, Any]:
    outputs = call()

    def replay() -> None:
        for place, fresh in zip(tensors(outputs), tensors(call()), strict=True):
            place.copy_(fresh)

    return outputs, replay


@pytest.mark.parametrize("core", ["feedforward", "lstm", "rdn", "delta_lstm", "transformer"])
def test_it_answers_as_the_network_does_and_each_answer_stays(core):
    net, other = network(core), network(core).state_dict()
    expected = played(net, net, other)
    found = played(GraphedStep(net, replayed_by_hand), net, other)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_what_cannot_be_recorded_is_said_once_and_runs():
    def refuses(call: Any, device: torch.device) -> tuple[Any, Any]:
        tried.append(device)
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    tried: list[torch.device] = []
    net, other = network("rdn"), network("rdn").state_dict()
    expected = played(net, net, other)
    with pytest.warns(RuntimeWarning, match=r"cannot be a CUDA graph.*is capturing$") as said:
        found = played(GraphedStep(net, refuses), net, other)
    assert len(said) == len(tried) == 1
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("core", sorted(CORES))
def test_on_a_gpu_it_answers_as_the_network_does(core):
    net, other = network(core, "cuda"), network(core, "cuda").state_dict()
    expected = played(net, net, other)
    recorded = []

    def watched(*call: Any) -> tuple[Any, Any]:
        recorded.append(record(*call))
        return recorded[-1]

    found = played(GraphedStep(net, watched), net, other)
    assert len(recorded) == 1
    bound = 1e-5 if core == "lstm" else 0.0  # cuDNN's cannot be recorded, ours is
    for one, right in zip(found, expected, strict=True):
        torch.testing.assert_close(one, right, rtol=bound, atol=bound)


@pytest.mark.gpu
@NEEDS_GPU
def test_a_network_that_waits_for_the_gpu_is_launched_as_usual():
    net = network("rdn", "cuda")
    net.policy.register_forward_hook(lambda *call: call[-1] + float(call[-1].sum()) * 0)
    other = network("rdn", "cuda").state_dict()
    expected = played(net, net, other)
    with pytest.warns(RuntimeWarning, match="cannot be a CUDA graph"):
        found = played(GraphedStep(net), net, other)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
