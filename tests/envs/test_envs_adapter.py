"""Gymnasium environments through the adapter, against a plain loop over one environment."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Sequence,
    Text,
    Tuple,
)
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from fastweights import envs
from fastweights.envs import BrokenEnvironment, Episode, GymnasiumEnvironments, NoPictures
from fastweights.envs.observations import frame_format


class Show(gymnasium.Env):
    """Shows random pictures of `shape`, `length` steps long; rewards tell action and time."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012, as Gymnasium has it

    def __init__(self, shape=(6, 5, 3), length=4, start=0, dtype="uint8", render_mode=None):
        self.observation_space = Box(0, 255, shape, np.dtype(dtype))
        self.action_space = Discrete(3, start=start)
        self.length, self.render_mode = length, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        reward = float(action) + 0.5 * self.time
        return self._look(), reward, self.time == self.length, False, {}

    def render(self):
        return np.full((8, 9, 3), self.time, np.uint8)

    def _look(self):
        space = self.observation_space
        return self.np_random.integers(0, 256, space.shape).astype(space.dtype)


SHOW = "fastweights-tests/Show-v0"


@pytest.fixture(autouse=True)
def registered(register_game):
    register_game(SHOW, entry_point=Show)


def direct(env, seed, actions):
    """Play one environment; return its rows (observation, reward, is_first) and its episodes."""
    observation, _ = env.reset(seed=seed)
    rows, episodes, rewards = [(observation, 0.0, True)], [], []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        over = terminated or truncated
        if over:
            observation, _ = env.reset()
            total, steps = float(sum(rewards)), len(rewards)
            episodes.append((len(episodes), total, (total,), steps, steps))
            rewards = []
        rows.append((observation, reward, over))
    return rows, episodes


def check_against_direct(environments, make_one, actions, first_action=0, look=lambda x: x):
    rows = [environments.reset(), *(environments.step(action) for action in actions)]
    for env in range(environments.num_envs):
        expected, episodes = direct(make_one(), 7 + env, actions[:, env] + first_action)
        for row, (observation, reward, is_first) in zip(rows, expected, strict=True):
            np.testing.assert_array_equal(row.frame[env], look(observation))
            assert (row.reward[env], row.is_first[env]) == (np.float32(reward), is_first)
        assert episodes
        mine = [game for row in rows for game in row.episodes if game.env == env]
        assert mine == [Episode(env, *episode) for episode in episodes]
        lives = [life.life_return for row in rows for life in row.lives if life.env == env]
        assert lives == [game.episode_return for game in mine]


def test_cart_pole_is_cart_pole():
    environments = envs.make("CartPole-v1", 3, seed=7)
    actions = np.random.default_rng(0).integers(0, 2, (120, 3))
    check_against_direct(environments, lambda: gymnasium.make("CartPole-v1"), actions)
    assert (environments.frame_shape, environments.frame_dtype) == ((4,), np.float32)
    assert environments.action_meanings == ("0", "1")
    assert environments.frames_per_step == 1


def test_a_cut_off_episode_is_first_too():
    environments = envs.make("CartPole-v1", 1, options={"max_episode_steps": 5}, seed=7)
    environments.reset()
    rows = [environments.step(np.array([step % 2])) for step in range(10)]
    assert [bool(row.is_first[0]) for row in rows] == [False, False, False, False, True] * 2


def test_ones_own_game_with_pictures():
    environments = envs.make(SHOW, 2, seed=7)
    actions = np.random.default_rng(0).integers(0, 3, (30, 2))
    check_against_direct(environments, Show, actions, look=lambda hwc: hwc.transpose(2, 0, 1))
    assert (environments.frame_shape, environments.frame_dtype) == ((3, 6, 5), np.uint8)


def test_actions_that_do_not_start_at_zero():
    environments = envs.make(SHOW, 2, seed=7, options={"start": 5})
    actions = np.random.default_rng(0).integers(0, 3, (30, 2))
    check_against_direct(
        environments,
        lambda: Show(start=5),
        actions,
        first_action=5,
        look=lambda hwc: hwc.transpose(2, 0, 1),
    )


@pytest.mark.parametrize("tell_cut_off", [False, True])
@pytest.mark.parametrize(
    "told",
    [
        lambda time: {"legal_moves": np.arange(1 + time)},
        lambda time: {"goal": time if time % 2 else None},
    ],
    ids=["shape", "type"],
)
def test_a_game_may_tell_what_varies(told, tell_cut_off):
    class Tells(Show):
        def step(self, action):
            return *super().step(action)[:4], told(self.time + int(action))

        def reset(self, **how):
            return super().reset(**how)[0], told(0)

    gymnasium.registry[SHOW].entry_point = Tells
    environments = envs.make(SHOW, 2, seed=7, tell_cut_off=tell_cut_off)
    actions = np.random.default_rng(0).integers(0, 3, (30, 2))
    check_against_direct(environments, Tells, actions, look=lambda hwc: hwc.transpose(2, 0, 1))


@pytest.mark.parametrize("space", ["observation_space", "action_space"])
def test_a_game_without_a_space_is_named(space):
    class Lacks(Show):
        def __init__(self, **options):
            super().__init__()
            delattr(self, space)

    gymnasium.registry[SHOW].entry_point = Lacks
    with pytest.raises(BrokenEnvironment, match=f"^{SHOW} has no {space}: set self.{space} in"):
        envs.make(SHOW, 2)


def test_a_module_is_imported_for_its_registrations(tmp_path, monkeypatch):
    (tmp_path / "a_module_of_games.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('MyGame-v0', entry_point=CartPoleEnv)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        environments = envs.make("a_module_of_games:MyGame-v0", 2)
        assert environments.reset().frame.shape == (2, 4)
    finally:
        gymnasium.registry.pop("MyGame-v0", None)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((84, 84), (1, 84, 84)),
        ((84, 84, 1), (1, 84, 84)),
        ((60, 80, 3), (3, 60, 80)),
        ((84, 84, 12), (12, 84, 84)),
        ((4, 84, 84), (4, 84, 84)),
    ],
)
def test_images_come_channels_first(shape, expected):
    space = Box(0, 255, shape, np.uint8)
    frames = frame_format(space)
    batch = np.stack([space.sample() for _ in range(2)])
    converted = frames.convert(batch)
    assert frames.shape == expected == converted.shape[1:]
    assert converted.dtype == frames.dtype == np.uint8
    assert converted.flags.c_contiguous
    assert not np.shares_memory(converted, batch)
    if len(shape) == 3 and expected != shape:
        batch = batch.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(converted, batch.reshape(2, *expected))


@pytest.mark.parametrize(
    "space",
    [
        Box(-1, 1, (3,), np.float64),
        Box(-1, 1, (), np.float32),
        Box(-1, 1, (2, 5), np.float32),
        Box(0, 255, (128,), np.int16),
    ],
)
def test_vectors_come_flat_and_single_precision(space):
    frames, batch = frame_format(space), np.stack([space.sample() for _ in range(2)])
    converted = frames.convert(batch)
    assert frames.shape == (max(1, int(np.prod(space.shape))),)
    assert converted.dtype == frames.dtype == np.float32
    assert not np.shares_memory(converted, batch)
    np.testing.assert_array_equal(converted, batch.reshape(2, -1).astype(np.float32))


def test_discrete_observations_come_one_hot():
    frames = frame_format(Discrete(4, start=10))
    np.testing.assert_array_equal(frames.convert(np.array([10, 13])), [[1, 0, 0, 0], [0, 0, 0, 1]])
    assert envs.make("FrozenLake-v1", 2).reset().frame.shape == (2, 16)


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 1, (8, 8, 3), np.float32),
        Box(0, 255, (4, 8, 8, 3), np.uint8),
        Text(5),
        Sequence(Discrete(2)),
        Dict(screen=Box(0, 255, (8, 8, 3), np.uint8), lives=Discrete(4)),
        Tuple((Discrete(2), Dict(deep=Box(0, 1, (8, 8, 3), np.float32)))),
    ],
)
def test_other_observations_are_refused_in_one_line(space):
    with pytest.raises(ValueError, match=r"not supported.*uint8.*Discrete") as raised:
        frame_format(space)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "space", [Box(0, 1, (0,)), Box(0, 255, (0, 84), np.uint8), Tuple((Box(0, 1, (0,)),))]
)
def test_observations_without_numbers_are_refused(space):
    with pytest.raises(ValueError, match=r"Empty-v0 has the observation space .* no numbers"):
        frame_format(space, "Empty-v0")


def test_other_actions_are_refused():
    with pytest.raises(ValueError, match=r"Pendulum-v1 has the action space Box.*Discrete"):
        envs.make("Pendulum-v1", 1)


def test_unknown_options_name_the_environment():
    with pytest.raises(ValueError, match=r"CartPole-v1 does not take .*corridor"):
        envs.make("CartPole-v1", 1, options={"corridor": 3})


@pytest.mark.parametrize("limit", [0.5, 0, "long", True])
def test_a_wrong_limit_of_steps_is_one_line(limit):
    with pytest.raises(
        ValueError, match=r"option max_episode_steps of CartPole-v1 must be a whole"
    ):
        envs.make("CartPole-v1", 1, options={"max_episode_steps": limit})


def test_a_limit_of_steps_ends_a_game():
    environments = envs.make("CartPole-v1", 1, options={"max_episode_steps": 3})
    environments.reset()
    ends = [environments.step(np.array([step % 2])).is_first[0] for step in range(6)]
    assert ends == [False, False, True] * 2
    envs.make("CartPole-v1", 1, options={"max_episode_steps": -1}).reset()  # no limit


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_only_same_step_autoreset(mode):
    vector_env = SyncVectorEnv([Show], autoreset_mode=mode)
    with pytest.raises(ValueError, match=r"reset in the same step.*or register a single game"):
        GymnasiumEnvironments(vector_env, name="Show", seed=0)


def test_a_vector_environment_of_ones_own():
    vector_env = SyncVectorEnv([Show] * 2, autoreset_mode="SameStep")
    environments = GymnasiumEnvironments(vector_env, name="Show", seed=7)
    actions = np.random.default_rng(0).integers(0, 3, (12, 2))
    check_against_direct(environments, Show, actions, look=lambda hwc: hwc.transpose(2, 0, 1))


def test_pictures():
    environments = envs.make(SHOW, 2, render=True)
    environments.reset()
    environments.step(np.zeros(2, np.int64))
    np.testing.assert_array_equal(environments.render(), np.ones((2, 8, 9, 3), np.uint8))


@pytest.mark.filterwarnings("ignore:.*render")  # Gymnasium's, on metadata without modes or speed
def test_a_game_without_metadata_is_drawn():
    class Bare(Show):
        metadata = {}  # noqa: RUF012, as Gymnasium has it

    gymnasium.registry[SHOW].entry_point = Bare
    environments = envs.make(SHOW, 2, render=True)
    environments.reset()
    assert environments.render().shape == (2, 8, 9, 3)


def test_a_game_that_does_not_keep_its_render_mode_is_named():
    class Forgets(Show):
        def __init__(self, **options):
            super().__init__()

    gymnasium.registry[SHOW].entry_point = Forgets
    environments = envs.make(SHOW, 2, render=True)
    environments.reset()
    with pytest.raises(NoPictures, match=f"^{SHOW} draws no pictures: .* set self.render_mode"):
        environments.render()


@pytest.mark.parametrize("action", [[3, 0], [-1, 0], [0], [0.5, 0.5]])
def test_bad_actions_are_refused(action):
    environments = envs.make(SHOW, 2)
    environments.reset()
    with pytest.raises(ValueError, match="actions must be"):
        environments.step(np.array(action))


def test_rows_belong_to_the_caller():
    environments = envs.make(SHOW, 2)
    row = environments.reset()
    kept = [array.copy() for array in row[:3]]
    for _ in range(6):
        environments.step(np.ones(2, np.int64))
    for array, then in zip(row[:3], kept, strict=True):
        np.testing.assert_array_equal(array, then)


@pytest.mark.parametrize("error", [gymnasium.error.DependencyNotInstalled, ImportError])
def test_what_is_not_installed_is_named_in_one_line(error):
    class Needy(Show):
        def __init__(self, **options):
            raise error("Box3D is not installed,\nget it")

    gymnasium.registry[SHOW].entry_point = Needy
    with pytest.raises(ValueError, match="cannot be created here: Box3D is not installed, get it"):
        envs.make(SHOW, 2, seed=0)
