"""Rollouts as Ray sends them: bit-identical and small; unexpected content is refused."""

import math
import pickle

import numpy as np
import pytest
import torch

from fastweights import envs
from fastweights.agents.actor import Actor
from fastweights.agents.network import Network, NetworkConfig
from fastweights.cores import CORES
from fastweights.kernels.recurrence import map_state
from fastweights.training.ray.unstacking import restack, unstack
from fastweights.training.ray.wire import WireError, pack, rollout_form, unpack
from fastweights.training.schedules.experience import Experience

SMALL = (("width", 16), ("heads", 2), ("layers", 2))


def network_for(environments, core="lstm") -> Network:
    config = NetworkConfig(
        frame_shape=environments.frame_shape,
        num_actions=environments.num_actions,
        core=core,
        core_options=tuple(item for item in SMALL if item[0] in CORES[core].options()),
        stem="auto" if len(environments.frame_shape) == 1 else "shallow",
    )
    return Network(config)


def play(env: str, core="lstm", length=6, streams=3, rollouts=2, **options):
    """Return the last of some rollouts, and its form."""
    environments = envs.make(env, streams, seed=7, num_threads=1, **options)
    network = network_for(environments, core)
    actor = Actor(network, environments)
    for _ in range(rollouts):
        collected = actor.collect(length)
    environments.close()
    return Experience(collected, 41), rollout_form(network, length, streams)


def assert_same(one: Experience, two: Experience) -> None:
    assert one.version == two.version
    assert one.collected.episodes == two.collected.episodes
    assert one.collected.lives == two.collected.lives
    ours, theirs = one.collected.rollout, two.collected.rollout
    for name, tensor, other in zip(ours._fields[:-1], ours[:-1], theirs[:-1], strict=True):
        assert tensor.dtype == other.dtype and torch.equal(tensor, other), name
    assert_same_state(ours.initial_state, theirs.initial_state)


def assert_same_state(one, two) -> None:
    assert type(one) is type(two)
    for part, other in zip(one, two, strict=True):
        if isinstance(part, torch.Tensor):
            assert part.dtype == other.dtype and torch.equal(part, other)
        else:
            assert_same_state(part, other)


def carried(experience: Experience) -> tuple[Experience, int]:
    """Return what Ray would deliver and its bytes; arrays lie beside the pickle, read-only."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(pack(experience), protocol=5, buffer_callback=buffers.append)
    memory = [bytes(buffer) for buffer in buffers]
    return pickle.loads(content, buffers=memory), len(content) + sum(map(len, memory))


@pytest.mark.parametrize("core", CORES)
def test_any_core_s_state_comes_back(core):
    experience, form = play("Catch", core)
    assert_same(unpack(carried(experience)[0], form), experience)


@pytest.mark.parametrize("env", ["Catch", "TMaze", "CartPole-v1"])
def test_finished_games_come_back(env):
    experience, form = play(env, length=60)
    assert experience.collected.episodes and experience.collected.lives
    assert_same(unpack(carried(experience)[0], form), experience)


# Lives that reset the memory, or not.
@pytest.mark.parametrize("protocol", ["full-game", "machado"])
def test_atari_comes_back_and_travels_unstacked(protocol):
    experience, form = play("Qbert", length=30, streams=2, rollouts=3, protocol=protocol)
    packed, size = carried(experience)
    assert_same(unpack(packed, form), experience)
    assert size < 1.3 * 30 * 2 * 84 * 84


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("env", ["Catch", "Qbert"])
def test_received_rollouts_are_writable(env):
    """The memory of Ray's objects is shared with other processes."""
    experience, form = play(env, length=4, streams=2, rollouts=1)
    packed, _ = carried(experience)
    rollout = unpack(packed, form).collected.rollout
    map_state(lambda tensor: tensor.fill_(1), rollout)
    assert_same(unpack(packed, form), experience)


def stacks(pictures: int, streams: int = 3, rows: int = 9) -> torch.Tensor:
    """Return stacks of random pictures; each stack follows the previous one."""
    frame = torch.randint(0, 256, (rows, streams, pictures, 5, 4), dtype=torch.uint8)
    for row in range(1, rows):
        frame[row, :, :-1] = frame[row - 1, :, 1:]
    return frame


@pytest.mark.parametrize("pictures", [1, 2, 4])
@pytest.mark.parametrize("breaks", [[], [(1, 0)], [(1, 0), (1, 1), (4, 2), (8, 2)]])
def test_stacks_come_back_whatever_a_reset_shows(pictures, breaks):
    frame = stacks(pictures)
    for row, stream in breaks:
        frame[row, stream] = torch.randint(0, 256, frame.shape[2:], dtype=torch.uint8)
    parts = unstack(frame)
    assert torch.equal(restack(parts), frame)
    if pictures > 1:  # the break, and the stack after it if this one no longer follows
        assert set(breaks) <= {(i // 3 + 1, i % 3) for i in parts.breaks.tolist()}
    else:
        assert len(parts.breaks) == 0


def test_one_pixel_is_a_break():
    frame = stacks(4)
    frame[5, 1, 0, 4, 3] ^= 1
    parts = unstack(frame)
    assert parts.breaks.tolist() == [4 * 3 + 1]
    assert torch.equal(restack(parts), frame)


def test_only_stacks_that_follow_on_are_small():
    colours = torch.randint(0, 256, (9, 3, 3, 84, 84), dtype=torch.uint8)
    parts = unstack(colours)
    assert sum(part.numel() for part in parts[:2] + parts[3:]) == colours.numel()
    assert torch.equal(restack(parts), colours)


def test_a_part_of_a_rollout_can_be_sent():
    experience, form = play("Catch", streams=4)
    part = experience.collected.rollout.columns(1, 3)
    experience = Experience(experience.collected._replace(rollout=part, episodes=[], lives=[]), 0)
    assert_same(unpack(carried(experience)[0], form.columns(1, 3)), experience)


@pytest.fixture(scope="module")
def qbert():
    return play("Qbert", length=4, streams=2, rollouts=1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"reward": torch.zeros(5, 3)}, r"not torch.float32 of \(5, 2\)"),
        ({"reward": torch.zeros(5, 2, dtype=torch.float64)}, "reward is torch.float64"),
        ({"frame": torch.zeros(5, 2, 4, 84, 83, dtype=torch.uint8)}, r"frame\.first is .* 84, 83"),
        ({"frame": torch.zeros(5, 2, 9)}, "frame is torch.float32"),
        ({"policy_logits": torch.zeros(4, 2, 7)}, r"policy_logits is .* of \(4, 2, 6\)"),
        ({"initial_state": ()}, "initial_state.* missing or unknown"),
        ({"reward": torch.tensor([[0.0, math.nan]] * 5)}, "reward holds nan"),
        ({"policy_logits": torch.full((4, 2, 6), math.inf)}, "policy_logits holds inf"),
        ({"action": torch.full((4, 2), 6)}, r"^action holds 6, which must lie in \[0, 6\)"),
        ({"last_action": torch.full((5, 2), -1)}, "last_action holds -1"),
    ],
)
def test_what_is_not_expected_is_refused(changes, says, qbert):
    experience, form = qbert
    collected = experience.collected
    rollout = collected.rollout._replace(**changes)
    packed, _ = carried(experience._replace(collected=collected._replace(rollout=rollout)))
    with pytest.raises(WireError, match=says):
        unpack(packed, form)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"newest": np.zeros((3, 2, 84, 84), np.uint8)}, r"frame\.newest is .* of shape \(3, 2"),
        ({"breaks": np.array([0, 8]), "older": 2}, r"frame\.breaks holds 8, .* \[0, 8\)"),
        ({"breaks": np.array([3, 3]), "older": 2}, r"frame\.breaks are not ascending"),
        ({"breaks": np.array([3]), "older": 2}, r"frame\.older is .* of shape \(2, 3, 84, 84\)"),
    ],
)
def test_pictures_that_cannot_be_stacked_are_refused(changes, says, qbert):
    """The learner takes them for a lost rollout, instead of ending in an IndexError."""
    experience, form = qbert
    if "older" in changes:
        changes = changes | {"older": np.zeros((changes["older"], 3, 84, 84), np.uint8)}
    packed = pack(experience)
    rollout = packed.collected.rollout
    rollout = rollout._replace(frame=rollout.frame._replace(**changes))
    with pytest.raises(WireError, match=says):
        unpack(packed._replace(collected=packed.collected._replace(rollout=rollout)), form)


def test_a_core_s_state_that_is_not_finite_is_refused(qbert):
    experience, form = qbert
    collected = experience.collected
    state = map_state(lambda part: part.fill_(-math.inf), collected.rollout.initial_state)
    rollout = collected.rollout._replace(initial_state=state)
    with pytest.raises(WireError, match=r"initial_state\.\S+ holds -inf"):
        unpack(pack(experience._replace(collected=collected._replace(rollout=rollout))), form)


def test_of_another_run_is_refused():
    experience, form = play("Catch", "lstm")
    for other in (
        play("Catch", "lstm", length=7)[1],
        play("Catch", "lstm", streams=2)[1],
        play("Catch", "rdn")[1],
        play("CartPole-v1", "lstm")[1],
        play("Qbert", "lstm")[1],
    ):
        with pytest.raises(WireError):
            unpack(pack(experience), other)
    with pytest.raises(WireError, match="not a rollout but a bytes"):
        unpack(b"a message", form)
