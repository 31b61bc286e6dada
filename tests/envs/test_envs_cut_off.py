"""Episodes that a time limit cuts off: the frames that would have followed."""

from itertools import pairwise

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
    """Shows its time and a random number, in one array that is written to again.

    A game ends after a random number of steps, from `shortest` to `length`.
    """

    action_space = Discrete(2)

    def __init__(self, space="box", length=9, shortest=9):
        one = Box(-100, 100, (2,))
        self.observation_space = {
            "box": one,
            "nested": Tuple((Discrete(20), Dict(at=one))),
            "picture": Box(0, 255, (4, 5, 3), np.uint8),
        }[space]
        self.length, self.shortest, self.shown = length, shortest, np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.number = 0, self.np_random.integers(100)
        self.ends = self.np_random.integers(min(self.shortest, self.length), self.length + 1)
        return self._look(), {}

    def step(self, action):
        self.time += 1
        return self._look(), 1.0, self.time == self.ends, False, {}

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


def test_some_games_are_cut_off_while_others_go_on():
    options = {"shortest": 2, "max_episode_steps": LIMIT}
    rows = rows_of(COUNTS, 200, num_envs=4, options=options, tell_cut_off=True)
    told = [(before, row) for before, row in pairwise(rows) if row.cut_off]
    assert len({tuple(row.cut_off.streams) for _, row in told}) > 4
    for before, row in told:
        streams = row.cut_off.streams
        assert (before.frame[streams, 0] == LIMIT - 1).all() and row.is_first[streams].all()
        np.testing.assert_array_equal(row.cut_off.frame[:, 0], LIMIT)
        np.testing.assert_array_equal(row.cut_off.frame[:, 1], before.frame[streams, 1])
    ends = sum(row.is_first.sum() for row in rows[1:])
    assert 0 < sum(len(row.cut_off.streams) for _, row in told) < ends


def test_episodes_that_end_by_themselves_are_not_cut_off():
    rows = rows_of(
        COUNTS,
        12,
        options={"length": LIMIT, "shortest": LIMIT, "max_episode_steps": LIMIT},
        tell_cut_off=True,
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
        self.observation_space = None  # nothing else asks for it, either
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
def test_atari_games_that_are_cut_off(flicker):
    """Of six games, some have been lost before the limit."""
    rules = {"flicker": flicker, "max_frames": 640}
    cut = rows_of("Breakout", 165, 6, options=rules, tell_cut_off=True)
    free = rows_of("Breakout", 165, 6, options={"flicker": flicker}, tell_cut_off=True)
    ((row, same),) = [(one, two) for one, two in zip(cut, free, strict=True) if one.cut_off]
    assert row.cut_off.streams.tolist() == [2, 4, 5]
    assert not any(one.cut_off for one in free)
    for stream, last in zip(row.cut_off.streams, row.cut_off.frame, strict=True):
        assert row.is_first[stream] and (last != row.frame[stream]).any()
        wanted = same.frame[stream]
        np.testing.assert_array_equal(last[:-1], wanted[:-1])
        assert (last[-1] != wanted[-1]).mean() < 0.01  # ball and paddle, a step apart
        np.testing.assert_array_equal(last.any((1, 2)), wanted.any((1, 2)))
    untold = rows_of("Breakout", 45, options={"max_frames": 160})
    assert not any(one.cut_off for one in untold)


def test_a_life_that_ends_in_the_step_of_the_limit_is_not_cut_off(monkeypatch):
    environments = envs.make(
        "Breakout", 2, seed=3, options={"max_frames": 160, "noop_max": 0}, tell_cut_off=True
    )
    advance = environments._advance

    def lost_in_the_first(action):
        frame, reward, terminated, truncated, info = advance(action)
        return frame, reward, terminated | (truncated & [True, False]), truncated, info

    monkeypatch.setattr(environments, "_advance", lost_in_the_first)
    environments.reset()
    rows = [environments.step(np.zeros(2, np.int64)) for _ in range(45)]
    told = [row for row in rows if row.cut_off]
    assert told and all(row.cut_off.streams.tolist() == [1] for row in told)
    assert all(row.is_first.all() for row in told)
