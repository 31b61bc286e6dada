"""Untrained memories: a cue must still affect the output some steps later."""

from dataclasses import replace

import pytest
import torch

from fastweights.agents.network import Network
from fastweights.cores import CORES
from fastweights.training.presets import preset

STEPS, DRAWS = 10, 10
MEMORIES = [name for name, kind in CORES.items() if kind.has_fast_weights]


@torch.no_grad()
def trace(core: str, **options: str) -> float:
    """Return how much the first memory's output depends on the cue `STEPS` steps later.

    This is the root mean square, over draws of the weights, of the difference between two cues.
    Weights and options are those of the maze preset.
    """
    squares = []
    for draw in range(DRAWS):
        torch.manual_seed(draw)
        network = Network(replace(preset("maze", core), **options).network((4,), 3)).double()
        frames = torch.zeros(STEPS + 1, 2, 4).double()
        frames[0, 0, 0] = frames[0, 1, 1] = frames[1:STEPS, :, 2] = frames[STEPS, :, 3] = 1
        features = network.stem(frames.flatten(0, 1)).unflatten(0, (STEPS + 1, 2))
        x = torch.cat([features, torch.zeros(STEPS + 1, 2, 1).double()], -1)
        block = network.core.blocks[0]
        is_first = torch.zeros(STEPS + 1, 2, dtype=torch.bool)
        read = block.memory_norm(network.core.embed(x))
        y, _ = block.memory.unroll(read, block.initial_state(2), is_first)
        squares.append((y[-1, 0] - y[-1, 1]).square().mean())
    return torch.stack(squares).mean().sqrt().item()


@pytest.mark.parametrize("core", MEMORIES)
def test_a_cue_leaves_a_trace(core):
    assert trace(core) > 1e-3


def test_with_the_published_softmax_the_self_referential_matrix_keeps_next_to_none():
    assert trace("srwm", core_input_map="softmax") < 0.02 * trace("srwm")
