"""The acting step as a CUDA graph: the recorded step gives the same answers as the network.

Without a GPU, the network computes the replays and writes them to the recorded memory.
"""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from fastweights.agents import graphed_step
from fastweights.agents.graphed_step import GraphedStep
from fastweights.agents.network import Network, NetworkConfig
from fastweights.cores import CORES
from fastweights.host.stages import Stages
from fastweights.kernels.cuda.launch import unavailable
from fastweights.training.assembly import assembled
from fastweights.training.presets import preset
from fastweights.training.schedules.choice import plan_of

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
    """Return inputs of the network for all steps; some episodes begin in the middle."""
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
    """Return all answers of `act`; the second half of the steps uses the weights `other`."""
    state, answers = net.initial_state(STREAMS), []
    before = {name: weight.clone() for name, weight in net.state_dict().items()}
    for step, row in enumerate(rows(next(net.parameters()).device.type)):
        if step == STEPS // 2:
            net.load_state_dict(other)
        output, state = act(*row, state)
        # The answers are read after the last step, when a later replay could have changed them.
        answers.extend(tensors((output, state)))
    net.load_state_dict(before)
    return answers


@pytest.fixture
def by_hand(monkeypatch) -> list[list[int]]:
    """Replace CUDA graphs by calls; return for each recording its replays, numbered from 1."""
    recordings: list[list[int]] = []

    def record_by_hand(call: Any, device: torch.device) -> tuple[Any, Any]:
        outputs, replays = call(), []
        recordings.append(replays)

        def replay() -> None:
            replays.append(len(replays) + 1)
            for place, fresh in zip(tensors(outputs), tensors(call()), strict=True):
                place.copy_(fresh)

        return outputs, replay

    monkeypatch.setattr(graphed_step, "record", record_by_hand)
    return recordings


@pytest.mark.parametrize("core", ["feedforward", "lstm", "rdn", "delta_lstm", "transformer"])
def test_it_answers_as_the_network_does_and_each_answer_stays(core, by_hand):
    net, other = network(core), network(core).state_dict()
    expected = played(net, net, other)
    found = played(GraphedStep(net), net, other)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert by_hand == [[*range(1, STEPS + 1)]]


@pytest.mark.parametrize("other", [{"count": STREAMS - 1}, {"dtype": torch.float64}])
def test_what_was_not_recorded_is_refused(other, by_hand):
    net = network("rdn")
    act = GraphedStep(net)
    frame, reward, is_first, action = rows()[0]
    state = net.initial_state(STREAMS)
    act(frame, reward, is_first, action, state)
    if "count" in other:
        frame = frame[:, : other["count"]]
    with pytest.raises(ValueError, match="the recorded step expects"):
        act(frame.to(other.get("dtype")), reward, is_first, action, state)


@pytest.mark.parametrize("schedule", ["lockstep", "asynchronous"])
@pytest.mark.parametrize("asked", [False, True])
def test_every_schedule_has_it_where_it_was_asked_for(schedule, asked, by_hand):
    sizes = {"num_envs": 4, "batch_size": 4, "unroll_length": 3, "num_threads": 1}
    options = replace(preset("maze", "rdn"), **sizes, schedule=schedule, core_width=16)
    plan = plan_of(options)
    plan.options = replace(plan.options, cuda_graphs=asked)  # `plan_of` refuses it without a GPU
    groups = plan.options.env_groups if schedule == "asynchronous" else 1
    with assembled(plan.options, plan, Stages("learner")) as (_, source):
        source.publish(0)
        with source:
            for _ in source.rollouts():
                if not asked or (len(by_hand) == groups and all(map(len, by_hand))):
                    break
                source.release(1)
    assert bool(by_hand) == asked


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("core", sorted(CORES))
def test_on_a_gpu_it_answers_as_the_network_does(core):
    net, other = network(core, "cuda"), network(core, "cuda").state_dict()
    expected = played(net, net, other)
    stream = torch.cuda.current_stream()
    found = played(GraphedStep(net), net, other)
    assert torch.cuda.current_stream() == stream
    for one, right in zip(found, expected, strict=True):
        torch.testing.assert_close(one, right, rtol=0.0, atol=0.0)


WAITS = """
import torch
from fastweights.agents.graphed_step import CannotRecord, record

number, stream = torch.ones(3, device="cuda"), torch.cuda.current_stream()
try:
    record(lambda: number * float(number.sum()), number.device)
except CannotRecord as error:
    print(error)
print(torch.cuda.current_stream() == stream)
"""


@pytest.mark.gpu
@NEEDS_GPU
def test_a_step_that_waits_for_the_gpu_cannot_be_recorded():
    """Run it in a separate process, because a failed recording leaves CUDA in an error state."""
    ran = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True)
    said, same_stream = ran.stdout.splitlines()
    assert (
        said.startswith("the acting step cannot be recorded as a CUDA graph: ") and "captur" in said
    )
    assert same_stream == "True"
