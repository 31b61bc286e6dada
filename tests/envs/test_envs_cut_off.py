"""Episodes that a time limit cuts off: the frames that would have followed."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from fastweights import envs
from fastweights.envs import BrokenEnvironment, TimeStep

COUNTS = "fastweights-tests/Counts-v0"
LIMIT = 5


class Counts(gymnasium.Env):
    """Shows its time and seed, in one array that is written to again; ends after `length` steps."""

    action_space = Discrete(2)

    def __init__(self, space="box", length=9):
        one = Box(-100, 100, (2,))
        self.observation_space = {
            "box": one,
            "nested": Tuple((Discrete(20), Dict(at=one))),
            "picture": Box(0, 255, (4, 5, 3), np.uint8),
        }[space]
        self.length, self.shown = length, np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.number = 0, self.np_random.integers(100)
        return self._look(), {}

    def step(self, action):
        self.time += 1
        return self._look(), 1.0, self.time == self.length, False, {}

    def _look(self):
        self.shown[:] = self.time, self.number
        if isinstance(self.observation_space, Tuple):
            return self.time, {"at": self.shown}
        if self.observation_space.dtype == np.uint8:
            return np.full((4, 5, 3), 10 * self.time, np.uint8)
        return self.shown


@pytest.fixture(autouse=True)
def counts(register_game):
    register_game(COUNTS, entry_point=Counts)


def rows_of(name: str, steps: int, num_envs: int = 2, **given) -> list[TimeStep]:
    environments = envs.make(name, num_envs, seed=3, **given)
    actions = np.random.default_rng(0).integers(0, environments.num_actions, (steps, num_envs))
    rows = [environments.reset(), *(environments.step(action) for action in actions)]
    environments.close()
    return rows


@pytest.mark.parametrize("space", ["box", "nested", "picture"])
def test_the_frames_are_those_of_the_game_without_a_limit(space):
    options = {"space": space}
    limited = rows_of(COUNTS, 12, options=options | {"max_episode_steps": LIMIT}, tell_cut_off=True)
    free = rows_of(COUNTS, 12, options=options)
    for t, row in enumerate(limited):
        if t == 0 or t % LIMIT:
            assert row.cut_off is None
            continue
        assert row.is_first.all()
        np.testing.assert_array_equal(row.cut_off.streams, [0, 1])
        if t == LIMIT:
            np.testing.assert_array_equal(row.cut_off.frame, free[t].frame)
            assert row.cut_off.frame.dtype == row.frame.dtype
        assert (row.cut_off.frame != row.frame).any()


def test_episodes_that_end_by_themselves_are_not_cut_off():
    rows = rows_of(
        COUNTS, 12, options={"length": LIMIT, "max_episode_steps": LIMIT}, tell_cut_off=True
    )
    assert sum(row.is_first.all() for row in rows) == 3
    assert all(row.cut_off is None for row in rows)


def test_nobody_is_told_who_has_not_asked():
    rows = rows_of(COUNTS, 12, options={"max_episode_steps": LIMIT})
    assert rows[LIMIT].is_first.all() and all(row.cut_off is None for row in rows)


def test_a_maze_tells_only_of_games_that_ran_out_of_time():
    environments = envs.make("TMaze", 2, options={"corridor": 1}, tell_cut_off=True)
    environments.reset()
    forward = environments.action_meanings.index("forward")
    turn = 1 if forward == 0 else 0
    told = [environments.step(np.array([forward if t < 1 else turn, turn])) for t in range(11)]
    cut = [(t, row.cut_off.streams.tolist()) for t, row in enumerate(told) if row.cut_off]
    assert told[1].is_first[0] and cut[-1][0] == 10 and 1 in cut[-1][1]
    assert told[10].cut_off.frame.shape == (len(cut[-1][1]), *environments.frame_shape)


class Batch(VectorEnv):
    """Two games that are cut off in every step; `final` is what their info tells."""

    def __init__(self, num_envs, final="array", **_):
        self.num_envs, self.final = num_envs, final
        self.single_observation_space, self.single_action_space = Box(-9, 9, (2,)), Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def reset(self, *, seed=None, options=None):
        return np.zeros((self.num_envs, 2), np.float32), {}

    def step(self, actions):
        told = {
            "array": {"final_obs": np.full((self.num_envs, 2), 7.0, np.float32)},
            "ragged": {"final_obs": np.array([np.zeros(2), np.zeros(3)], object)},
            "nan": {"final_obs": np.full((self.num_envs, 2), np.nan, np.float32)},
            "missing": {},
        }[self.final]
        no, yes = np.zeros(self.num_envs, bool), np.ones(self.num_envs, bool)
        return self.reset()[0], np.zeros(self.num_envs), no, yes, told


def test_a_vector_environment_tells_by_its_info(register_game):
    register_game("fastweights-tests/Batch-v0", vector_entry_point=Batch)
    row = rows_of("fastweights-tests/Batch-v0", 1, tell_cut_off=True)[1]
    assert row.cut_off.streams.tolist() == [0, 1]
    assert (row.cut_off.frame == 7).all() and not row.frame.any()


@pytest.mark.parametrize(
    ("final", "said"),
    [
        ("missing", r"without info\['final_obs'\], which --bootstrap-truncated needs"),
        ("ragged", r"returned info\['final_obs'\] = .*one observation of Box"),
        ("nan", r"the observation of step 1 is nan"),
    ],
)
def test_last_observations_that_are_none_are_one_line(final, said, register_game):
    register_game("fastweights-tests/Batch-v0", vector_entry_point=Batch)
    options = {"final": final}
    with pytest.raises(BrokenEnvironment, match=said) as caught:
        rows_of("fastweights-tests/Batch-v0", 1, options=options, tell_cut_off=True)
    assert "\n" not in str(caught.value)
    if final == "missing":  # without the option it need not tell
        assert rows_of("fastweights-tests/Batch-v0", 1, options=options)[1].is_first.all()


@pytest.mark.parametrize("flicker", [0.0, 0.5])
def test_an_atari_game_that_is_cut_off(flicker):
    rules = {"flicker": flicker, "noop_max": 0}
    cut = rows_of("Breakout", 45, options=rules | {"max_frames": 160}, tell_cut_off=True)
    free = rows_of("Breakout", 45, options=rules, tell_cut_off=True)
    ends = [t for t, row in enumerate(cut) if row.cut_off]
    assert ends and not any(row.cut_off for row in free)
    row, same = cut[ends[0]], free[ends[0]]
    last, wanted = row.cut_off.frame, same.frame[row.cut_off.streams]
    np.testing.assert_array_equal(last[:, :-1], wanted[:, :-1])
    assert (last[:, -1] != wanted[:, -1]).mean() < 0.02  # ball and paddle, a step apart
    blank = ~wanted.any(axis=(2, 3))
    np.testing.assert_array_equal(blank, ~last.any(axis=(2, 3)))
    assert blank.any() == bool(flicker)
    assert row.is_first[row.cut_off.streams].all()
    assert (last != row.frame[row.cut_off.streams]).any()
    assert not any(told.cut_off for told in rows_of("Breakout", 45, options={"max_frames": 160}))
