"""Test games on the real emulator equal a plain loop's, whatever number is played at once."""

from dataclasses import replace

import ale_py
import numpy as np
import pytest
import torch
from ale_py import ALEInterface, roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from fastweights import envs
from fastweights.agents.network import Network, NetworkConfig, NetworkOutput
from fastweights.envs.interface import TimeStep
from fastweights.envs.naming import resolve
from fastweights.evaluation.clips import visible_environments
from fastweights.evaluation.games import (
    check_actions,
    film,
    play_games,
    score_modulus,
)
from fastweights.evaluation.player import BLOCK, Player
from fastweights.evaluation.playing import GamePlan, check_plays, environments_of_plan, play
from fastweights.evaluation.training_tests import games_of
from fastweights.launch import atari, watch
from fastweights.training.options import RunOptions
from fastweights.training.saved_agent import SavedAgent, open_agent

SMALL = {"core_width": 16, "core_heads": 2, "core_layers": 1}
FRAME_SKIP = 16  # shortens games, in agent steps
SKIP = (f"frame_skip={FRAME_SKIP}", "frame_stack=1")
POLE = RunOptions(env="CartPole-v1", core="lstm", core_width=16)


def network_for(options: RunOptions) -> Network:
    torch.manual_seed(0)
    environments = envs.make(options.env, 1, options=options.environment_options())
    return Network(options.network(environments.frame_shape, environments.num_actions))


@pytest.fixture(scope="module")
def qbert(tmp_path_factory) -> SavedAgent:
    """Return a briefly trained agent, changed so that its actions depend on what it sees."""
    folder = tmp_path_factory.mktemp("evaluation")
    core = ["--core", "rdn", "--core-width", "16", "--core-heads", "2", "--core-layers", "1"]
    game = ["--env", "Qbert", "--env-options", *SKIP, "--stem", "shallow", "--seed", "2"]
    batch = ["--num-envs", "4", "--batch-size", "4", "--unroll-length", "8", "--num-threads", "1"]
    where = ["--total-steps", "256", "--precision", "float32", "--savedir", str(folder)]
    assert atari.main([*game, *core, *batch, *where, "--xpid", "qbert"]) == 0
    agent = open_agent(folder / "qbert")
    environments = environments_of_plan(agent.options, GamePlan(), 2, 5)
    player = Player(agent.network, environments, action_mode="sampled", seed=5)
    logits = torch.cat([player.step().policy_logits for _ in range(30)])
    policy, spread = agent.network.policy, logits.std(0)
    with torch.no_grad():
        policy.bias.sub_(logits.mean(0)).div_(spread)
        policy.weight.div_(spread[:, None])
    return agent


def direct_game(network: Network, seed: int, mode: str) -> tuple[list[float], int, int]:
    """Play one full game of Qbert; return the returns of its lives, agent steps and frames."""
    game = AtariVectorEnv(
        "qbert",
        1,
        frameskip=FRAME_SKIP,
        stack_num=1,
        noop_max=30,
        use_fire_reset=True,
        repeat_action_probability=0.0,
        life_loss_info=True,
        reward_clipping=False,
        max_num_frames_per_episode=2**31 - 1,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    frame, info = game.reset(seed=seed)
    reward, first, steps, lives = np.zeros(1, np.float32), np.ones(1, bool), 0, [0.0]
    action, draws = np.zeros(1, np.int64), np.random.default_rng([seed, 0xAC7])
    state = network.initial_state(1)
    while True:
        row = (torch.as_tensor(part)[None] for part in (frame, reward, first, action))
        with torch.no_grad():
            output, state = network(*row, state)
        logits = output.policy_logits[0, 0].double()
        if mode == "argmax":
            action = logits.argmax()[None].numpy()
        else:
            cumulative = logits.softmax(0).cumsum(0).numpy()
            action = np.searchsorted(cumulative, [draws.random()], side="right")
        frames, lives_left = info["episode_frame_number"][0], info["lives"][0]
        frame, reward, over, _, info = game.step(action)
        reward, first, steps = reward.astype(np.float32), over, steps + 1
        lives[-1] += float(reward[0])
        if info["episode_frame_number"][0] < frames:
            return lives, steps, int(info["frame_number"][0] - info["episode_frame_number"][0])
        if info["lives"][0] < lives_left:
            lives.append(0.0)


@pytest.mark.parametrize("mode", ["argmax", "sampled"])
def test_games_are_those_of_a_direct_loop_however_many_at_once(qbert, mode):
    """A trained agent plays whole games, short and long; all games that begin are counted."""
    at_once = [GamePlan(episodes=3, repeats=1, seed=101, num_envs=number) for number in (0, 2)]
    together, apart = (play(qbert.network, qbert.options, 0, plan, mode) for plan in at_once)
    assert together == apart
    for seed, game in zip((101, 102, 103), together.episodes, strict=True):
        lives, steps, frames = direct_game(qbert.network, seed, mode)
        assert game.seed == seed and not game.cut
        assert list(game.life_returns) == lives and game.episode_return == sum(lives)
        assert (game.agent_steps, game.emulator_frames, game.lives) == (steps, frames, 4)
    # The games differ, so that mixing them up would show.
    assert any(game.episode_return > 0 for game in together.episodes)
    assert len({(game.agent_steps, game.life_returns) for game in together.episodes}) == 3


def test_emulators_get_the_threads_of_the_command_not_of_the_checkpoint(qbert, monkeypatch):
    heard = []
    interface = ale_py.ALEVectorInterface
    monkeypatch.setattr(
        ale_py,
        "ALEVectorInterface",
        lambda **flags: heard.append(flags["num_threads"]) or interface(**flags),
    )
    assert qbert.options.num_threads == 1
    environments_of_plan(qbert.options, GamePlan(num_threads=3), 2, 0).close()
    visible_environments(qbert, watch.WatchOptions(run=qbert.run, num_threads=3).game).close()
    plan = games_of(replace(qbert.options, evaluate_episodes=2, num_threads=3))
    environments_of_plan(qbert.options, plan, 2, 0).close()
    assert set(heard) == {3}


def test_eighteen_actions_under_machado():
    """An agent trained with all eighteen actions uses them, and a cap cuts its games."""
    size = {"core": "lstm", "core_width": 8, "stem": "shallow", "precision": "float32"}
    options = RunOptions(env="Qbert", protocol="machado", env_options=SKIP, **size)
    network = Network(options.network((1, 84, 84), 18))
    plan = GamePlan(episodes=2, repeats=2, seed=7, protocol="machado", max_frames=80)
    environments = environments_of_plan(options, plan, 2, plan.seed)
    check_plays(network, options, plan)
    player = Player(network, environments, action_mode="sampled", seed=plan.seed)
    actions = torch.cat([player.step().action for _ in range(60)])
    assert set(actions.tolist()) == set(range(18))
    evaluation = play(network, options, 0, plan, "sampled")
    assert evaluation.rules["full_action_set"] and evaluation.rules["sticky"] == 0.25
    assert [game.seed for game in evaluation.episodes] == [7, 8, 9, 10]
    assert [game.repeat for game in evaluation.episodes] == [0, 0, 1, 1]
    assert {(game.cut, game.agent_steps) for game in evaluation.episodes} == {(True, 5)}
    assert evaluation.max_frames == 80 and evaluation.summary()["cut_episodes"] == 4
    with pytest.raises(ValueError, match=r"unknown action mode 'greedy'.*argmax, sampled"):
        play(network, options, 0, plan, "greedy")
    with pytest.raises(ValueError, match="--episodes must be at least 1, not 0"):
        play(network, options, 0, replace(plan, episodes=0), "sampled")
    few = replace(options, protocol="full-game")
    with pytest.raises(ValueError, match="18 actions, but Qbert has 6"):
        check_plays(network, few, plan)


@pytest.mark.parametrize("options", [POLE, RunOptions(env="CartPole-v1", core="rdn", **SMALL)])
def test_games_do_not_depend_on_which_others_are_over(options):
    """Twenty games run in two blocks of rows, and in one block once enough games are over."""
    network, sizes = network_for(options), set()
    network.register_forward_pre_hook(lambda _, inputs: sizes.add(inputs[0].shape[1]))
    plans = [GamePlan(episodes=20, repeats=1, num_envs=num_envs) for num_envs in (0, 17, 7)]
    evaluations = [play(network, options, 0, plan, "sampled") for plan in plans]
    assert evaluations[0] == evaluations[1] == evaluations[2]
    assert len({game.agent_steps for game in evaluations[0].episodes}) > 8
    assert sizes == {BLOCK}  # a row's arithmetic depends on the number of rows


def test_another_seed_plays_other_games():
    network = network_for(POLE)
    one, other = (
        play(network, POLE, 0, GamePlan(episodes=2, repeats=1, seed=seed), "sampled").episodes
        for seed in (1, 2)
    )
    assert one[1]._replace(episode=0) == other[0]  # game 1 of seed 1 has seed 2
    assert one[0] != other[0]


def test_sampled_actions_follow_the_policy():
    """The policy is one half, one third and one sixth, whatever the agent sees."""
    network = network_for(RunOptions(env="TMaze", core="feedforward"))
    with torch.no_grad():
        network.policy.weight.zero_()
        network.policy.bias.copy_(torch.tensor([1 / 2, 1 / 3, 1 / 6]).log())
    seen = []

    class Listening(Scripted):
        def step(self, action):
            seen.extend(action.tolist())
            return super().step(action)

    play_games(network, Listening(lengths=[400] * 16), action_mode="sampled", seed=0)
    share = np.bincount(seen, minlength=3) / len(seen)
    assert share == pytest.approx([1 / 2, 1 / 3, 1 / 6], abs=0.02)


class Unmoved:
    """A network whose policy is always `probabilities`, computed in no time."""

    def __init__(self, probabilities):
        self.logits = torch.tensor(probabilities).log().expand(1, BLOCK, -1)

    def initial_state(self, batch_size):
        return torch.zeros(batch_size, 1)

    def __call__(self, *seen):
        return NetworkOutput(self.logits, torch.zeros(1, BLOCK)), seen[-1]


@pytest.mark.parametrize("probabilities", [[1 / 2, 1 / 3, 1 / 6], [0.02, 0.9, 0.08]])
def test_sampled_actions_have_no_bias_of_two_percent(probabilities):
    """Pearson's chi-squared test on 160,000 draws; if right, it fails once in 100,000 cases."""
    environments = Scripted(lengths=[200] * 800)
    player = Player(Unmoved(probabilities), environments, action_mode="sampled", seed=0)
    seen = np.bincount(np.concatenate([player.step().action for _ in range(200)]), minlength=3)
    expected = np.array(probabilities) * 160_000
    assert ((seen - expected) ** 2 / expected).sum() < 23.0  # two degrees of freedom


class Scripted:
    """Games of given lengths; each pays `rewards`, and every reward ends a life."""

    name, num_actions, frame_shape = "Scripted", 3, (4,)
    frames_per_step, steps_per_second = 1, 8.0

    def __init__(self, lengths, rewards=()):
        self.lengths, self.rewards = np.array(lengths), list(rewards)
        self.num_envs = len(lengths)

    def reset(self) -> TimeStep:
        self.age, self.index = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
        self.lives = [[] for _ in self.lengths]
        return self._row(np.zeros(self.num_envs), np.ones(self.num_envs, bool), (), ())

    def step(self, action: np.ndarray) -> TimeStep:
        reward = np.array([dict(enumerate(self.rewards)).get(age, 0.0) for age in self.age])
        self.age += 1
        over = self.age >= self.lengths
        lives, games = [], []
        for env in range(self.num_envs):
            if self.age[env] <= len(self.rewards) or over[env]:
                self.lives[env].append(float(reward[env]))
                lives.append(envs.Life(env, float(reward[env]), 1, 1))
            if over[env]:
                returns, self.lives[env] = tuple(self.lives[env]), []
                index, age = int(self.index[env]), int(self.age[env])
                games.append(envs.Episode(env, index, sum(returns), returns, age, age))
        self.index += over
        self.age[over] = 0
        return self._row(reward, over, tuple(games), tuple(lives))

    def _row(self, reward, is_first, games, lives) -> TimeStep:
        zeros = np.zeros((self.num_envs, 4), np.float32)
        return TimeStep(zeros, reward.astype(np.float32), is_first, games, lives)


def test_long_games_count_as_much_as_short_ones():
    """Short games end many times before a long one; only the first of each environment counts."""
    network = network_for(RunOptions(env="TMaze", core="feedforward"))
    lengths = [2] * 5 + [50] * 5
    played = play_games(network, Scripted(lengths), action_mode="argmax", seed=0)
    assert [one.game.agent_steps for one in played] == lengths
    assert {one.game.index for one in played} == {0}


def test_a_wrapped_counter_is_noticed_in_its_life():
    network = network_for(RunOptions(env="TMaze", core="feedforward"))
    script = Scripted([6, 6], rewards=[999_000.0, -999_900.0, -400_000.0])
    play_it = {"action_mode": "argmax", "seed": 0}
    played = play_games(network, script, score_modulus=1_000_000, **play_it)
    assert [one.life_wraps for one in played] == [(0, 1, 0, 0)] * 2
    unaware = play_games(network, script, **play_it)
    assert [one.life_wraps for one in unaware] == [(0, 0, 0, 0)] * 2


@pytest.mark.parametrize(
    ("name", "digits", "most"),
    [("UpNDown", (0, 1, 2), 10_000), ("BattleZone", (0x1D, 0x1E), 5_000)],
)
def test_a_wrapped_score_of_six_digits_is_noticed(name, digits, most):
    """The cartridge runs with its score memory set to just below the largest score."""
    game = ALEInterface()
    game.setInt("random_seed", 1)
    game.setFloat("repeat_action_probability", 0.0)
    game.loadROM(roms.get_rom_path(resolve(name).rom))
    actions = game.getMinimalActionSet()
    generator = np.random.default_rng(0)
    for _ in range(60):
        game.act(actions[0])
    for cell in digits:
        game.setRAM(cell, 0x99)
    rewards = []
    while not rewards or (min(rewards) > -500_000 and len(rewards) < 5_000):
        rewards.append(float(game.act(actions[generator.integers(len(actions))])))
    assert max(rewards) > 900_000  # the score that was written into memory
    assert 0 < rewards[-1] + 1_000_000 <= most
    rewards = [reward for reward in rewards if reward]
    network = network_for(RunOptions(env="TMaze", core="feedforward"))
    played = play_games(
        network,
        Scripted([len(rewards)], rewards),
        action_mode="argmax",
        seed=0,
        score_modulus=score_modulus(name),
    )
    assert played[0].life_wraps == (0,) * (len(rewards) - 1) + (1,)


def test_a_game_without_end_is_cut_and_keeps_what_it_had():
    """The third game has just ended; the limit applies to games that are still running."""
    network = network_for(RunOptions(env="TMaze", core="feedforward"))
    script = Scripted([10**6, 3, 5, 10**6], rewards=[2.0, -0.5])
    seen = []
    played = play_games(
        network,
        script,
        action_mode="argmax",
        seed=0,
        max_steps=5,
        progress=lambda finished, longest: seen.append((finished, longest)),
    )
    assert [one.game.agent_steps for one in played] == [5, 3, 5, 5]
    assert [one.game.episode_return for one in played] == [1.5] * 4
    assert played[0] == (envs.Episode(0, 0, 1.5, (1.5,), 5, 5), (0,))
    assert seen[-1] == (2, 5)


def test_a_plan_cuts_games_that_have_no_limit_of_their_own():
    maze = RunOptions(env="TMaze", env_options=("corridor=10",), core="feedforward")
    plan = GamePlan(episodes=4, repeats=1, max_frames=5)
    games = play(network_for(maze), maze, 0, plan, "argmax").episodes
    assert [(game.agent_steps, game.cut) for game in games] == [(5, True)] * 4


def test_a_film_is_the_first_game():
    maze = RunOptions(env="TMaze", env_options=("corridor=3",), core="lstm", core_width=16)
    network = network_for(maze)
    games = play(network, maze, 0, GamePlan(episodes=8, repeats=1), "sampled").episodes
    lengths = []
    for game in games:
        visible = envs.make("TMaze", 1, seed=game.seed, options={"corridor": 3}, render=True)
        film_it = {"action_mode": "sampled", "seed": game.seed}
        lengths.append(len(list(film(network, visible, max_steps=10_000, **film_it))))
    assert lengths == [game.agent_steps for game in games] and len(set(lengths)) > 2
    assert len(list(film(network, visible, max_steps=1, **film_it))) == 2


def test_a_network_does_not_play_another_shape_of_frame():
    with pytest.raises(ValueError, match=r"frames of shape \(4,\).*\(50,\)"):
        config = NetworkConfig(frame_shape=(4,), num_actions=3, core="feedforward")
        check_actions(Network(config), envs.make("Catch", 1))
    with pytest.raises(ValueError, match="7 actions, but Catch has 3"):
        config = NetworkConfig(frame_shape=(50,), num_actions=7, core="feedforward")
        check_actions(Network(config), envs.make("Catch", 1))
