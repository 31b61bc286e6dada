"""Composite spaces: flattened vectors as in Gymnasium, and joint actions."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Text,
    Tuple,
    flatten,
    flatten_space,
)
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from fastweights import envs
from fastweights.envs import BrokenEnvironment, GymnasiumEnvironments
from fastweights.envs.actions import MAX_JOINT_ACTIONS, action_format
from fastweights.envs.observations import frame_format

CARDS = "fastweights-tests/Cards-v0"


class Cards(gymnasium.Env):
    """A game with composite observations and actions; the reward encodes the action received."""

    observation_space = Tuple((Discrete(3), Dict(suit=Discrete(4), at=Box(-1, 1, (2,)))))
    action_space = MultiDiscrete([2, 3], start=[1, 0])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        return self._look(), float(action @ [10, 1]), self.time == 4, False, {}

    def _look(self):
        suit, *at = self.np_random.integers(0, 2, 3)
        return self.time % 3, {"suit": suit, "at": np.array(at, np.float32)}


@pytest.fixture
def cards(register_game):
    register_game(CARDS, entry_point=Cards)
    return CARDS


NESTED = [
    Tuple((Discrete(2), Discrete(3))),
    Dict(z=Discrete(2), a=Box(-1, 1, (2, 2), np.float64)),
    MultiDiscrete([2, 3], start=[5, -1]),
    MultiDiscrete([3, 2], dtype=np.uint8, start=[4, 1]),
    MultiDiscrete([[2, 3], [4, 5]]),
    MultiBinary([2, 3]),
    Tuple((Dict(a=MultiBinary(4), b=Tuple((Discrete(3, start=-1),))), Box(0, 255, (3,), np.int16))),
]


@pytest.mark.parametrize("space", NESTED)
def test_nested_observations_are_gymnasium_s_own_flat_vectors(space):
    space.seed(3)
    samples = [space.sample() for _ in range(9)]
    batch = concatenate(space, samples, create_empty_array(space, len(samples)))
    frames = frame_format(space)
    converted = frames.convert(batch)
    assert frames.shape == converted.shape[1:] == flatten_space(space).shape
    assert converted.dtype == frames.dtype == np.float32
    assert len({sample.tobytes() for sample in converted}) > 1
    expected = np.array([flatten(space, one) for one in samples], np.float32)
    np.testing.assert_array_equal(converted, expected)


def test_bytes_are_shares_of_their_upper_bound():
    """Atari's RAM would otherwise reach a stem for vectors as numbers up to 255."""
    ram = Box(np.zeros(3, np.uint8), np.array([255, 4, 0], np.uint8), dtype=np.uint8)
    space = Tuple((ram, Box(0, 255, (1,), np.int16)))
    batch = np.array([[51, 1, 0], [255, 4, 0]], np.uint8), np.array([[7], [255]], np.int16)
    found = frame_format(space).convert(batch)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [[0.2, 0.25, 0, 7], [1, 1, 0, 255]], rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "channels_last"),
    [
        ((84, 84, 3), True),
        ((4, 84, 84), False),
        ((7, 7, 20), True),
        ((12, 8, 8), False),
        ((210, 160, 3), True),
        ((3, 210, 160), False),
        ((9, 9, 9), False),
    ],
)
def test_a_picture_s_channels_are_its_first_axis_for_the_network(shape, channels_last):
    frames = frame_format(Box(0, 255, shape, np.uint8))
    batch = np.arange(2 * np.prod(shape)).reshape(2, *shape).astype(np.uint8)
    expected = np.moveaxis(batch, -1, 1) if channels_last else batch
    assert frames.shape == expected.shape[1:]
    np.testing.assert_array_equal(frames.convert(batch), expected)


def test_what_stands_inside_is_named():
    with pytest.raises(ValueError, match=r"Dict\(.*, with Text\(.*\) inside, which is not"):
        frame_format(Dict(says=Text(5), at=Discrete(3)))


def test_a_game_with_parts_is_played_as_its_parts(cards):
    environments = envs.make(cards, 2, seed=7)
    assert (environments.num_actions, environments.frame_shape) == (6, (3 + 2 + 4,))
    assert environments.action_meanings == ("1,0", "1,1", "1,2", "2,0", "2,1", "2,2")
    actions = np.random.default_rng(0).integers(0, 6, (30, 2))
    rows = [environments.reset(), *(environments.step(action) for action in actions)]
    for env in range(2):
        alone = Cards()
        observation, _ = alone.reset(seed=7 + env)
        np.testing.assert_array_equal(
            rows[0].frame[env], flatten(Cards.observation_space, observation)
        )
        for row, action in zip(rows[1:], actions[:, env], strict=True):
            pair = np.array([1 + action // 3, action % 3])
            observation, reward, over, *_ = alone.step(pair)
            if over:
                observation, _ = alone.reset()
            flat = flatten(Cards.observation_space, observation)
            np.testing.assert_array_equal(row.frame[env], flat)
            assert (row.reward[env], row.is_first[env]) == (reward, over)


def test_a_batch_with_another_part_than_declared_is_refused():
    class Batch(SyncVectorEnv):
        def reset(self, **seeds):
            (card, rest), info = super().reset(**seeds)
            return (card[:1], rest), info

    made = Batch([Cards] * 2, autoreset_mode="SameStep")
    environments = GymnasiumEnvironments(made, name="Mine", seed=0)
    with pytest.raises(BrokenEnvironment, match=r"Mine: reset\(\) .* shape \(1,\) for 2 env"):
        environments.reset()


class Lists(VectorEnv):
    """A batch of one step an episode that returns `observation`, and all else, as lists."""

    def __init__(self, space, observation):
        self.num_envs, self.single_observation_space = len(observation), space
        self.single_action_space = Discrete(2)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.observation = observation

    def reset(self, *, seed=None, options=None):
        return self.observation, {}

    def step(self, actions):
        ones = [1] * self.num_envs
        return self.observation, ones, [True] * self.num_envs, [False] * self.num_envs, {}


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (Box(-1, 1, (2,)), [[0.0, 1.0], [0.5, -1.0]]),
        (Box(0, 255, (2, 2), np.uint8), [np.eye(2, dtype=np.uint8), np.ones((2, 2), np.uint8)]),
        (Discrete(4, start=-1), [-1, 2]),
        (Tuple((Discrete(2), MultiDiscrete([2, 3]))), [[1, 0], [[1, 2], [0, 0]]]),
    ],
)
def test_a_batch_may_be_lists(space, observation):
    environments = GymnasiumEnvironments(Lists(space, observation), name="Mine", seed=0)
    rows = [environments.reset(), environments.step(np.zeros(2, np.int64))]
    streams = zip(*observation, strict=True) if isinstance(space, Tuple) else observation
    for stream, value in enumerate(streams):
        array = np.asarray(value, space.dtype)[None] if is_picture(space) else flatten(space, value)
        for row in rows:
            np.testing.assert_array_equal(row.frame[stream], array)
    assert rows[1].is_first.all() and rows[1].reward.tolist() == [1, 1]


def is_picture(space) -> bool:
    return space.dtype == np.uint8


@pytest.mark.parametrize(
    ("space", "observation", "says"),
    [
        (Discrete(4), [0, -1], "-1, but"),
        (Discrete(4), [0, 4], "4, but"),
        (Discrete(4, start=1), [0, 4], "0, but"),
        (MultiDiscrete([2, 3]), [[0, 2], [2, 2]], "2, but"),
    ],
)
def test_numbers_outside_their_range_are_refused(space, observation, says):
    environments = GymnasiumEnvironments(Lists(space, observation), name="Mine", seed=0)
    with pytest.raises(BrokenEnvironment, match=rf"Mine: reset\(\) .* observation of {says}"):
        environments.reset()


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (Box(-1, 1, (2,)), "whose actions are continuous: .*wrappers.DiscretizeAction$"),
        (MultiDiscrete([5] * 5), "have 3,125 combinations: .*at most 1,024.*TransformAction"),
        (MultiBinary(2), "whose actions are not one choice: .*wrappers.TransformAction$"),
    ],
)
def test_other_actions_are_refused_in_one_line(space, says):
    with pytest.raises(ValueError, match=f"^Mine has the action space .*{says}") as raised:
        action_format(space, "Mine")
    assert "\n" not in str(raised.value)


def test_as_many_joint_actions_as_are_allowed():
    allowed = action_format(MultiDiscrete([2] * 10))
    assert allowed.count == len(allowed.meanings) == MAX_JOINT_ACTIONS
    joint = allowed.convert(np.array([0, 5]))
    np.testing.assert_array_equal(joint, [[0] * 10, [0] * 7 + [1, 0, 1]])


def test_a_game_without_a_render_mode_is_refused_in_one_line(cards):
    with pytest.raises(ValueError, match=f"^{cards} draws no pictures: .* no render_mode$"):
        envs.make(cards, 1, render=True)
