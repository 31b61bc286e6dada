"""Rollouts as messages: the same to the bit, small, and anything else refused with one error."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from fastweights import envs
from fastweights.agents.actor import Actor
from fastweights.agents.network import Network, NetworkConfig
from fastweights.cores import CORES
from fastweights.envs.interface import Episode, Life
from fastweights.kernels.recurrence import map_state
from fastweights.training.ray.unstacking import restack, unstack
from fastweights.training.ray.wire import WireError, WireForm, check_timed, decode, encode
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
    """The last of some rollouts, with its form."""
    environments = envs.make(env, streams, seed=7, num_threads=1, **options)
    network = network_for(environments, core)
    actor = Actor(network, environments)
    for _ in range(rollouts):
        collected = actor.collect(length)
    environments.close()
    return Experience(collected, 41), WireForm.of(network, length, streams)


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


@pytest.mark.parametrize("core", CORES)
def test_any_core_s_state_comes_back(core):
    experience, form = play("Catch", core)
    message = encode(experience)
    assert_same(decode(message, form), experience)
    assert encode(decode(message, form)) == message


@pytest.mark.parametrize("env", ["Catch", "TMaze", "CartPole-v1"])
def test_finished_games_come_back(env):
    experience, form = play(env, length=60)
    assert experience.collected.episodes and experience.collected.lives
    assert_same(decode(encode(experience), form), experience)


@pytest.mark.parametrize("protocol", ["full-game", "machado"])  # lives that forget, or not
def test_atari_comes_back_and_travels_unstacked(protocol):
    experience, form = play("Qbert", length=30, streams=2, rollouts=3, protocol=protocol)
    message = encode(experience)
    assert_same(decode(message, form), experience)
    assert len(message) < 1.3 * 30 * 2 * 84 * 84


def stacks(pictures: int, streams: int = 3, rows: int = 9) -> torch.Tensor:
    """Of random pictures, each stack following on from the last."""
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
    if pictures > 1:  # the break, and where what follows it was made to follow something else
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


def test_numbers_come_back_to_the_bit():
    experience, form = play("Catch")
    collected = experience.collected
    odd = (0.1 + 0.2, -0.0, 1e-310, 2.0**60, 1e308)
    games = [Episode(2, 2**40, sum(odd), odd, 3, 5), Episode(0, 0, 0.1, (), 0, 2**62)]
    lives = [Life(1, value, 7, 2**33) for value in odd]
    experience = Experience(collected._replace(episodes=games, lives=lives), 2**40)
    assert_same(decode(encode(experience), form), experience)


def test_a_part_of_a_rollout_can_be_sent():
    experience, form = play("Catch", streams=4)
    part = experience.collected.rollout.columns(1, 3)
    experience = Experience(experience.collected._replace(rollout=part, episodes=[], lives=[]), 0)
    state = map_state(lambda tensor: tensor[:2], form.initial_state)
    assert_same(
        decode(encode(experience), form._replace(streams=2, initial_state=state)), experience
    )


@pytest.fixture(scope="module")
def qbert():
    experience, form = play("Qbert", length=4, streams=2, rollouts=1)
    return encode(experience), form


def changed(message: bytes, **tensors) -> bytes:
    """`message` with other tensors; None: without it. `__` stands for `.`."""
    parts = load(message) | {name.replace("__", "."): part for name, part in tensors.items()}
    return save({name: part for name, part in parts.items() if part is not None})


NAN = torch.full((1,), math.nan).double()
COUNTS = torch.tensor([[0, 0, 1, 1, 1]])


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"reward": None}, "reward is missing"),
        ({"reward": torch.zeros(5, 3)}, r"not torch.float32 of \(5, 2\)"),
        ({"reward": torch.zeros(5, 2, dtype=torch.float64)}, "float64"),
        ({"surplus": torch.zeros(1)}, "unknown: 'surplus'"),
        ({"action": torch.full((4, 2), 6)}, "action holds 6"),
        ({"last_action": torch.full((5, 2), -1)}, "last_action holds -1"),
        ({"is_first": torch.full((5, 2), 2, dtype=torch.uint8)}, "is_first holds 2"),
        ({"policy_logits": torch.zeros(4, 2, 7)}, "policy_logits"),
        ({"state__hidden": torch.zeros(3, 256)}, "state.hidden"),
        ({"version": torch.tensor(-1)}, "version holds -1"),
        ({"version": torch.tensor(42)}, "version holds 42, not a number from 0, less than 42"),
        ({"version": torch.tensor(2**62)}, "version holds"),
        ({"reward": torch.tensor([[0.0, math.nan]] * 5)}, "reward holds nan"),
        ({"policy_logits": torch.full((4, 2, 6), math.inf)}, "policy_logits holds inf"),
        ({"state__hidden": torch.full((2, 16), -math.inf)}, "state.hidden holds -inf"),
        (
            {"lives__counts": torch.tensor([[1, 0, 0]]), "lives__return": NAN},
            "lives.return holds nan",
        ),
        ({"frame__breaks": torch.tensor([8])}, "frame.breaks holds 8"),
        ({"frame__breaks": torch.tensor([3, 3])}, "does not rise"),
        ({"frame__breaks": torch.tensor([3, 5])}, "frame.older"),
        ({"frame__newest": torch.zeros(4, 2, 84, 83, dtype=torch.uint8)}, "frame.newest"),
        ({"games__counts": COUNTS, "games__return": torch.zeros(1).double()}, "life_returns"),
        ({"games__counts": COUNTS}, "games.return"),
        ({"lives__counts": torch.tensor([[2, 0, 0]])}, "lives.return"),
        (
            {"lives__counts": torch.tensor([[2, 0, 0]]), "lives__return": torch.zeros(1).double()},
            "stream beyond 2",
        ),
    ],
)
def test_what_is_not_expected_is_refused(tensors, says, qbert):
    message, form = qbert
    with pytest.raises(WireError, match=says):
        decode(changed(message, **tensors), form, 41)


@pytest.mark.parametrize(
    "timed",
    [
        None,
        {"sleeping": (1.0, 1)},
        {"emulation": 1.0},
        {"emulation": (1.0, 1, 1)},
        {"emulation": (math.nan, 1)},
        {"emulation": (-1.0, 1)},
        {"emulation": (True, 1)},
        {"emulation": (1.0, "1")},
        {"emulation": (1.0, 1), 3: (1.0, 1)},
    ],
)
def test_only_times_of_stages_are_entered(timed):
    check_timed({"emulation": (0.5, 3), "transfer": (0.0, 0)})
    with pytest.raises(WireError, match="no times of stages"):
        check_timed(timed)


def test_of_another_run_is_refused(qbert):
    message, form = qbert
    for other in (
        form._replace(length=5),
        form._replace(streams=1),
        form._replace(num_actions=4),
        form._replace(frame_shape=(3, 84, 84)),
        form._replace(frame_shape=(9,), frame_dtype=torch.float32),
        form._replace(initial_state=()),
    ):
        with pytest.raises(WireError):
            decode(message, other)


def test_damaged_bytes_are_refused_or_read_and_nothing_else(qbert):
    message, form = qbert
    header = 8 + int.from_bytes(message[:8], "little")
    generator = np.random.default_rng(0)
    refused = 0
    for turn in range(400):
        damaged = bytearray(message)
        where = generator.integers(header if turn % 2 else len(message))
        damaged[where] ^= 1 << generator.integers(8)
        try:
            decode(bytes(damaged), form)
        except WireError:
            refused += 1
    assert 100 < refused < 400
    for size in (0, 7, 8, header - 1, header, len(message) - 1):
        with pytest.raises(WireError):
            decode(message[:size], form)
    with pytest.raises(WireError):
        decode(message + b"\0", form)
