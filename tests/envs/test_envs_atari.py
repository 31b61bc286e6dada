"""The Atari batch, against a plain loop over one emulator at a time."""

import re

import ale_py
import numpy as np
import pytest
from ale_py import Action, ALEInterface, roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from fastweights import envs
from fastweights.envs import Episode, Life

SEED = 11


def emulator(rom, seed, sticky):
    ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", sticky)
    ale.loadROM(roms.get_rom_path(rom))
    return ale


def play(ale, actions, protocol, starts, env):
    """Play `actions` one frame at a time; `starts` are the frames before each game's decisions.

    Returns the rows (reward, is_first) and the finished lives and games.
    """
    buttons = ale.getLegalActionSet() if protocol.full_action_set else ale.getMinimalActionSet()
    fire = protocol.fire_at_reset and Action.FIRE in buttons
    starts, rows, lives_ended, games = iter(starts), [], [], []

    def new_game():
        ale.reset_game()
        start = next(starts)
        for frame in range(start):
            ale.act(Action.FIRE if fire and frame == 0 else Action.NOOP)
        return start

    frames_before_game, games_lives = new_game(), []
    life_return, life_steps, life_frames, played = 0, 0, frames_before_game, 0
    for action in actions:
        lives, reward, over = ale.lives(), 0, False
        for _ in range(protocol.frame_skip):
            reward += ale.act(buttons[action])
            life_frames += 1
            played += 1
            over = ale.game_over() or played >= protocol.max_frames
            if over:
                break
        life_return += reward
        life_steps += 1
        lost = 0 < ale.lives() < lives
        rows.append((reward, over or (lost and protocol.life_signal)))
        if not (over or lost):
            continue
        life = Life(env, float(life_return), life_steps, life_frames)
        lives_ended.append(life)
        games_lives.append(life)
        life_return = life_steps = life_frames = 0
        if over:
            returns = tuple(life.life_return for life in games_lives)
            steps = sum(life.agent_steps for life in games_lives)
            length = sum(life.emulator_frames for life in games_lives)
            if ale.game_over():
                assert length == ale.getEpisodeFrameNumber()
            games.append(Episode(env, len(games), sum(returns), returns, steps, length))
            played, games_lives = 0, []
            life_frames = new_game()
    return rows, lives_ended, games


def start_lengths(rom, protocol, actions):
    """Return from frame numbers how many frames ale-py plays before each game's first decision."""
    num_envs = actions.shape[1]
    raw = AtariVectorEnv(
        rom,
        num_envs,
        img_height=8,
        img_width=8,
        autoreset_mode=AutoresetMode.SAME_STEP,
        noop_max=protocol.noop_max,
        use_fire_reset=protocol.fire_at_reset,
        repeat_action_probability=protocol.sticky,
        full_action_space=protocol.full_action_set,
        max_num_frames_per_episode=protocol.max_frames,
    )
    number = raw.reset(seed=SEED)[1]["episode_frame_number"]
    starts = [[int(n)] for n in number]
    for action in actions:
        before, number = number, raw.step(action)[4]["episode_frame_number"]
        for env in np.flatnonzero(number < before):
            starts[env].append(int(number[env]))
    return starts


CASES = [
    # Lives and games that end without a cap.
    ("Breakout", "full-game", {}, 300, 2),
    ("Breakout", "machado", {}, 160, 1),
    ("Breakout", "noop30", {"max_frames": 900}, 410, 1),
    ("Qbert", "full-game", {}, 360, 1),
    ("Qbert", "published", {"sticky": 0.25}, 340, 1),
    # The last life is played with a counter of 0; the step from 1 to 0 ends nothing.
    ("BankHeist", "full-game", {}, 440, 1),
    # The cap is a whole number of agent steps, or falls inside one.
    ("Qbert", "full-game", {"max_frames": 402}, 210, 1),
    # Pong has no lives: a game ends after 21 points, or by the cap.
    ("Pong", "full-game", {}, 790, 1),
    ("Pong", "full-game", {"max_frames": 400}, 110, 1),
]


@pytest.mark.parametrize(("game", "protocol", "options", "steps", "num_envs"), CASES)
def test_rows_lives_and_games_are_the_plain_loops(game, protocol, options, steps, num_envs):
    environments = envs.make(game, num_envs, seed=SEED, protocol=protocol, options=options)
    rules = environments.protocol
    actions = np.random.default_rng(5).integers(0, environments.num_actions, (steps, num_envs))
    first = environments.reset()
    assert first.is_first.all()
    assert not first.reward.any()
    rows = [environments.step(action) for action in actions]
    rom = re.sub("(?<!^)(?=[A-Z])", "_", game).lower()
    starts = start_lengths(rom, rules, actions)
    for env in range(num_envs):
        ale = emulator(rom, SEED + env, rules.sticky)
        expected, lives, games = play(ale, actions[:, env], rules, starts[env], env)
        assert [(row.reward[env], row.is_first[env]) for row in rows] == expected
        assert [life for row in rows for life in row.lives if life.env == env] == lives
        assert [game for row in rows for game in row.episodes if game.env == env] == games
        assert games, "no game ended, so this case checks nothing"


def test_lives_sum_to_their_game():
    environments = envs.make("Breakout", 3, seed=2)
    environments.reset()
    rng, lives, games = np.random.default_rng(0), [[], [], []], 0
    for _ in range(400):
        row = environments.step(rng.integers(0, 4, 3))
        for life in row.lives:
            lives[life.env].append(life)
        for game in row.episodes:
            mine, lives[game.env] = lives[game.env], []
            games += 1
            assert game.episode_return == sum(life.life_return for life in mine)
            assert game.life_returns == tuple(life.life_return for life in mine)
            assert len(mine) == 5
            assert game.agent_steps == sum(life.agent_steps for life in mine)
            # Up to 29 frames before the first decision; the game's end may cut the last step short.
            assert -3 <= game.emulator_frames - 4 * game.agent_steps <= 29
    assert games >= 3


def test_a_lost_life_forgets_but_the_game_goes_on():
    """The frame stack goes on after a lost life; a new game starts with an empty stack."""
    environments = envs.make("Breakout", 1, seed=0)
    environments.reset()
    rng, seen = np.random.default_rng(1), set()
    before = environments.step(np.array([1])).frame
    for _ in range(300):
        row = environments.step(rng.integers(0, 4, 1))
        new_game = bool(row.episodes)
        assert (row.frame[0, :3] == 0).all() == new_game
        assert (row.frame[0, :3] == before[0, 1:]).all() != new_game
        assert row.is_first[0] == bool(row.lives)
        before = row.frame
        seen.add((bool(row.lives), new_game))
    assert seen == {(False, False), (True, False), (True, True)}


def stream(environments, steps=80, seed=3):
    rng = np.random.default_rng(seed)
    rows = [environments.reset()]
    for _ in range(steps):
        action = rng.integers(0, environments.num_actions, 8)[: environments.num_envs]
        rows.append(environments.step(action))
    return rows


def assert_same(rows, others):
    for row, other in zip(rows, others, strict=True):
        for one, two in zip(row[:3], other[:3], strict=True):
            np.testing.assert_array_equal(one, two)
        assert row[3:] == other[3:]


def test_a_seed_is_a_stream():
    rows = stream(envs.make("Breakout", 2, seed=4, protocol="machado"))
    again = envs.make("Breakout", 2, seed=4, protocol="machado", num_threads=1)
    assert_same(rows, stream(again))
    assert_same(rows, stream(again))  # reset() starts again
    other = stream(envs.make("Breakout", 2, seed=6, protocol="machado"))
    assert any((row.frame != one.frame).any() for row, one in zip(rows, other, strict=True))


def test_environment_i_plays_seed_plus_i_whatever_the_batch():
    rows = stream(envs.make("Qbert", 3, seed=4))
    alone = envs.make("Qbert", 1, seed=6)
    rng = np.random.default_rng(3)
    frames = [alone.reset().frame]
    frames += [alone.step(rng.integers(0, 6, 8)[2:3]).frame for _ in range(80)]
    np.testing.assert_array_equal(np.stack(frames)[:, 0], np.stack([r.frame for r in rows])[:, 2])


def test_rows_belong_to_the_caller():
    environments = envs.make("Breakout", 2)
    rows = [environments.reset()]
    copies = [[array.copy() for array in rows[0][:3]]]
    for _ in range(40):
        rows.append(environments.step(np.array([1, 2])))
        copies.append([array.copy() for array in rows[-1][:3]])
    environments.close()
    for row, copy in zip(rows, copies, strict=True):
        for kept, then in zip(row[:3], copy, strict=True):
            np.testing.assert_array_equal(kept, then)


def test_frames_are_small_grey_stacks():
    environments = envs.make("SpaceInvaders", 2)
    row = environments.reset()
    assert (environments.name, environments.num_envs) == ("SpaceInvaders", 2)
    assert environments.frame_shape == (4, 84, 84)
    assert environments.frame_dtype == row.frame.dtype == np.uint8
    assert row.frame.shape == (2, 4, 84, 84)
    assert (row.reward.dtype, row.is_first.dtype) == (np.float32, bool)
    assert environments.step(np.zeros(2, np.int64)).reward.dtype == np.float32


def test_rewards_are_not_clipped():
    environments = envs.make("Qbert", 1, seed=0)
    rows = stream(environments, 300)
    assert max(row.reward[0] for row in rows) == 25.0


def test_bad_actions_are_refused():
    environments = envs.make("Qbert", 2)
    environments.reset()
    for action in ([6, 0], [-1, 0], [0], [0, 0, 0], [[0, 0]], [0.0, 0.0]):
        with pytest.raises(ValueError, match="actions must be"):
            environments.step(np.array(action))
        environments.step(np.array([5, 0]))  # a valid step still works


@pytest.mark.parametrize(
    "bad", [{"num_envs": 0}, {"num_envs": 2, "seed": -1}, {"num_envs": 1, "num_threads": -1}]
)
@pytest.mark.parametrize("name", ["Qbert", "Catch", "CartPole-v1"])
def test_bad_batches(name, bad):
    with pytest.raises(ValueError, match=r"num_envs|seed|num_threads"):
        envs.make(name, **bad)
