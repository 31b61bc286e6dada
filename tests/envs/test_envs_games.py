"""Catch and the T-maze, against their rules written out for one game at a time."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from fastweights import envs
from fastweights.envs.catch import Catch
from fastweights.envs.t_maze import FORWARD, LEFT, RIGHT, TMaze

SEED = 9


def catch_games(seed, actions):
    """Yield the rows (observation, reward, is_first) of one stream."""
    rng, rows, reward = np.random.default_rng(seed), [], 0.0
    actions = iter(actions)
    while True:
        ball_row, ball_column, paddle = 0, int(rng.integers(5)), 2
        first = True
        while ball_row < 9:
            board = [[0.0] * 5 for _ in range(10)]
            board[ball_row][ball_column] = 1.0
            board[9][paddle] = 1.0
            rows.append((np.ravel(board), reward if first else 0.0, first))
            first = False
            action = next(actions, None)
            if action is None:
                return rows
            paddle = min(4, max(0, paddle + {0: -1, 1: 0, 2: 1}[action]))
            ball_row += 1
        reward = 1.0 if paddle == ball_column else -1.0


def t_maze_games(seed, corridor, actions):
    """Yield the rows (observation, reward, is_first) of one stream."""
    rng, rows, reward, actions = np.random.default_rng(seed), [], 0.0, iter(actions)
    while True:
        prize, position, steps, over = ("left", "right")[rng.integers(2)], 0, 0, False
        while not over:
            cue = [float(steps == 0 and prize == side) for side in ("left", "right")]
            place = [0.0, 1.0] if position == corridor else [1.0, 0.0]
            rows.append((cue + place, reward, steps == 0))
            action = next(actions, None)
            if action is None:
                return rows
            steps += 1
            reward = -0.1
            if position < corridor and action == 0:
                position, reward = position + 1, 0.0
            elif position == corridor and action != 0:
                reward, over = (1.0 if action == {"left": 1, "right": 2}[prize] else -1.0), True
            over = over or steps == corridor + 10


def stream(environments, actions):
    return [environments.reset(), *(environments.step(action) for action in actions)]


def assert_stream(rows, env, expected):
    np.testing.assert_array_equal([row.frame[env] for row in rows], [one[0] for one in expected])
    np.testing.assert_allclose([row.reward[env] for row in rows], [one[1] for one in expected])
    np.testing.assert_array_equal([row.is_first[env] for row in rows], [one[2] for one in expected])


def test_catch_is_catch():
    actions = np.random.default_rng(0).integers(0, 3, (200, 4))
    rows = stream(envs.make("Catch", 4, seed=SEED), actions)
    for env in range(4):
        assert_stream(rows, env, catch_games(SEED + env, actions[:, env].tolist()))
    returns = [game.episode_return for row in rows for game in row.episodes]
    assert set(returns) == {1.0, -1.0}
    assert {game.agent_steps for row in rows for game in row.episodes} == {9}


def test_catch_in_pictures_is_the_same_game():
    actions = np.random.default_rng(0).integers(0, 3, (30, 4))
    vectors = stream(envs.make("Catch", 4, seed=SEED), actions)
    pictures = stream(envs.make("Catch", 4, seed=SEED, options={"pictures": True}), actions)
    for vector, picture in zip(vectors, pictures, strict=True):
        assert picture.frame.dtype == np.uint8 and picture.frame.shape == (4, 1, 40, 20)
        pixels = np.kron(vector.frame.reshape(4, 10, 5), np.full((4, 4), 255))
        np.testing.assert_array_equal(picture.frame[:, 0], pixels)
        np.testing.assert_array_equal(picture.reward, vector.reward)
        assert picture.episodes == vector.episodes


@pytest.mark.parametrize("corridor", [1, 2, 5, 10])
def test_t_maze_is_t_maze(corridor):
    # Mostly forward, because otherwise no game would reach its junction.
    actions = np.random.default_rng(0).choice(3, (300, 4), p=[0.6, 0.2, 0.2])
    rows = stream(envs.make("TMaze", 4, seed=SEED, options={"corridor": corridor}), actions)
    for env in range(4):
        assert_stream(rows, env, t_maze_games(SEED + env, corridor, actions[:, env].tolist()))


def test_following_the_ball_catches_it():
    environments = envs.make("Catch", 8)
    row, returns = environments.reset(), []
    for _ in range(90):
        board = row.frame.reshape(8, 10, 5)
        ball, paddle = board[:, :9].sum(1).argmax(1), board[:, 9].argmax(1)
        row = environments.step(np.sign(ball - paddle) + 1)
        returns += [game.episode_return for game in row.episodes]
    assert returns == [1.0] * 80


def t_maze_returns(turn, corridor=4, steps=400):
    """Walk to the junction, take `turn(remembered cues, frames)` and return the games' returns."""
    environments = envs.make("TMaze", 16, options={"corridor": corridor})
    row, returns = environments.reset(), []
    cue = row.frame[:, :2]
    for _ in range(steps):
        cue = np.where(row.is_first[:, None], row.frame[:, :2], cue)
        junction = row.frame[:, 3] == 1
        row = environments.step(np.where(junction, turn(cue, row.frame), FORWARD))
        returns += [game.episode_return for game in row.episodes]
    return np.array(returns)


def test_memory_wins_the_t_maze_and_nothing_else_does():
    with_memory = t_maze_returns(lambda cue, frame: np.where(cue[:, 0] == 1, LEFT, RIGHT))
    assert len(with_memory) == 16 * 400 // 5
    assert (with_memory == 1).all()
    for side in (LEFT, RIGHT):
        assert abs(t_maze_returns(lambda cue, frame, side=side: side).mean()) < 0.1


def test_after_the_cue_frames_say_nothing_about_it():
    """A policy of the present frame alone is at chance: frames are the same for either cue."""
    games = {}
    for seed in range(20):
        game = TMaze(1, corridor=6)
        first, _ = game.reset(seed=seed)
        frames = [game.step(np.array([FORWARD]))[0] for _ in range(6)]
        games.setdefault(tuple(first[0]), []).append(np.concatenate(frames))
    assert set(games) == {(1, 0, 1, 0), (0, 1, 1, 0)}
    every = [frames for same_cue in games.values() for frames in same_cue]
    assert all((frames == every[0]).all() for frames in every)
    np.testing.assert_array_equal(every[0][-1], [0, 0, 0, 1])


@pytest.mark.parametrize("actions", [[LEFT] * 20, [FORWARD] * 20])
def test_t_mazes_end_and_a_win_is_read_from_the_return(actions):
    game = TMaze(1, corridor=10)
    game.reset(seed=0)
    ends = [game.step(np.array([action]))[2:4] for action in actions]
    assert [bool(truncated[0]) for _, truncated in ends] == [False] * 19 + [True]
    assert not any(terminated[0] for terminated, _ in ends)
    # The slowest win, after nine idle steps, still has a positive return.
    environments = envs.make("TMaze", 16, options={"corridor": 1})
    row = environments.reset()
    cue = row.frame[:, 0]
    for action in [np.full(16, LEFT)] * 9 + [np.full(16, FORWARD), np.where(cue == 1, LEFT, RIGHT)]:
        row = environments.step(action)
    assert len(row.episodes) == 16
    assert all(0 < game.episode_return < 0.2 for game in row.episodes)


@pytest.mark.parametrize("name", ["Catch", "TMaze"])
def test_games_do_not_depend_on_how_many_there_are(name):
    actions = np.random.default_rng(1).integers(0, 3, (120, 5))
    together = stream(envs.make(name, 5, seed=3), actions)
    for env in range(5):
        alone = stream(envs.make(name, 1, seed=3 + env), actions[:, env : env + 1])
        for row, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(row.frame[env], one.frame[0])
            assert (row.reward[env], row.is_first[env]) == (one.reward[0], one.is_first[0])


@pytest.mark.parametrize("name", ["Catch", "TMaze"])
def test_reset_starts_over_and_another_seed_elsewhere(name):
    actions = np.random.default_rng(1).integers(0, 3, (120, 8))
    environments = envs.make(name, 8, seed=3)
    frames = [np.stack([row.frame for row in stream(environments, actions)]) for _ in range(2)]
    np.testing.assert_array_equal(*frames)
    other = np.stack([row.frame for row in stream(envs.make(name, 8, seed=30), actions)])
    assert (other != frames[0]).any()


@pytest.mark.parametrize(
    ("gymnasium_id", "kind"), [("fastweights/Catch-v0", Catch), ("fastweights/TMaze-v0", TMaze)]
)
def test_they_are_gymnasium_vector_environments(gymnasium_id, kind):
    game = gymnasium.make_vec(gymnasium_id, num_envs=3)
    assert isinstance(game, kind)
    assert game.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    observation, _ = game.reset(seed=0)
    for _ in range(60):
        assert game.observation_space.contains(observation)
        observation, reward, terminated, truncated, info = game.step(game.action_space.sample())
        over = terminated | truncated
        assert ("final_obs" in info) == over.any()
        if over.any():
            np.testing.assert_array_equal(info["_final_obs"], over)
            assert (info["final_obs"][over] != observation[over]).any(axis=1).all()
    assert reward.dtype == np.float32
    game.reset()  # the generators continue
    game.close()


@pytest.mark.parametrize("name", ["Catch", "TMaze"])
def test_pictures_move_and_fit_video_codecs(name):
    environments = envs.make(name, 2, render=True)
    environments.reset()
    before = environments.render()
    environments.step(np.zeros(2, np.int64))
    after = environments.render()
    assert before.dtype == np.uint8
    assert before.shape[0] == 2
    assert before.shape[3] == 3
    assert before.shape[1] % 16 == before.shape[2] % 16 == 0
    assert (before != after).any(axis=(1, 2, 3)).all()


def test_bad_arguments():
    with pytest.raises(ValueError, match="corridor must be at least 1, got 0"):
        envs.make("TMaze", 1, options={"corridor": 0})
    with pytest.raises(ValueError, match=r"TMaze does not take .*width"):
        envs.make("TMaze", 1, options={"width": 3})
    with pytest.raises(ValueError, match="'human'"):
        Catch(render_mode="human")
    with pytest.raises(ValueError, match="expected 2 seeds, got 3"):
        Catch(2).reset(seed=[1, 2, 3])


@pytest.mark.parametrize("name", ["Catch", "TMaze"])
def test_restored_games_continue_identically(name):
    """Restore games in progress, their rewards so far, and the random draws to come."""
    playing, other = (envs.make(name, 3, seed=seed) for seed in (4, 5))
    rng = np.random.default_rng(0)
    actions = rng.integers(playing.num_actions, size=(60, 3))
    stream(playing, actions[:25])
    where = playing.snapshot()
    later = [playing.step(action) for action in actions[25:]]
    other.reset()
    for _ in range(2):  # a snapshot can be used twice
        other.restore(where)
        for expected, action in zip(later, actions[25:], strict=True):
            row = other.step(action)
            assert all(map(np.array_equal, expected[:3], row[:3]))
            assert (expected.episodes, expected.lives) == (row.episodes, row.lives)
    assert sum(len(row.episodes) for row in later) > 3


def test_games_are_not_put_back_into_another_number_of_them():
    playing, more = (envs.make("TMaze", count, seed=1) for count in (2, 3))
    playing.reset(), more.reset()
    with pytest.raises(ValueError, match="another number of games"):
        more.restore(playing.snapshot())


def test_games_without_snapshots_return_none():
    playing = envs.make("CartPole-v1", 2)
    playing.reset()
    assert playing.snapshot() is None


def test_games_may_find_that_they_cannot_be_restored(monkeypatch):
    playing = envs.make("Catch", 2)
    playing.reset()
    assert playing.snapshot() is not None
    monkeypatch.setattr(Catch, "snapshot", lambda self: None)
    assert playing.snapshot() is None
