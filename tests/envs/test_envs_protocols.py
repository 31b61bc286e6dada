"""Protocols: their settings, and that ale-py receives all of them."""

import dataclasses
import inspect

import ale_py
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv

from fastweights import envs
from fastweights.envs import PROTOCOLS, Protocol

COMMON = {
    "frame_skip": 4,
    "maxpool": True,
    "stack_num": 4,
    "img_height": 84,
    "img_width": 84,
    "grayscale": True,
    "episodic_life": False,
    "reward_clipping": False,
    "max_episode_steps": 108_000,
    "autoreset_mode": "SameStep",
    "batch_size": 2,
}
LEARNER = {
    "repeat_action_probability": 0.0,
    "noop_max": 30,
    "use_fire_reset": True,
    "full_action_space": False,
    "life_loss_info": True,
}
EXPECTED = {
    "full-game": LEARNER,
    "published": LEARNER,
    "machado": {
        "repeat_action_probability": 0.25,
        "noop_max": 0,
        "use_fire_reset": False,
        "full_action_space": True,
        "life_loss_info": False,
    },
    "noop30": {**LEARNER, "use_fire_reset": False, "life_loss_info": False},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_flag_reaches_the_emulator(protocol, monkeypatch):
    heard = {}
    interface = ale_py.ALEVectorInterface
    monkeypatch.setattr(
        ale_py, "ALEVectorInterface", lambda **flags: heard.update(flags) or interface(**flags)
    )
    environments = envs.make("Qbert", 2, protocol=protocol)
    wanted = {**COMMON, **EXPECTED[protocol]}
    assert {flag: heard[flag] for flag in wanted} == wanted
    assert environments.num_actions == (18 if protocol == "machado" else 6)
    assert environments.action_meanings[:2] == ("NOOP", "FIRE")
    assert environments.frames_per_step == 4


def test_no_flag_is_left_to_a_default(monkeypatch):
    said = {}
    original = AtariVectorEnv.__init__

    def listen(self, game, num_envs, **flags):
        said.update(flags)
        original(self, game, num_envs, **flags)

    monkeypatch.setattr(AtariVectorEnv, "__init__", listen)
    envs.make("Qbert", 1)
    known = set(inspect.signature(original).parameters) - {"self", "game", "num_envs"}
    # The threshold only matters for continuous actions, which are off.
    assert known - set(said) == {"continuous_action_threshold"}


def test_scores_are_full_games_unless_published():
    scores = {name: protocol.score for name, protocol in PROTOCOLS.items()}
    assert scores == {"full-game": "game", "published": "life", "machado": "game", "noop30": "game"}
    assert dataclasses.replace(PROTOCOLS["published"], score="game") == PROTOCOLS["full-game"]


def test_no_stickiness_obeys_and_stickiness_does_not():
    """Without stickiness and no-ops the seeds make no difference; with stickiness they do."""
    rows = {}
    for sticky in (0.0, 0.25):
        environments = envs.make("Breakout", 2, options={"sticky": sticky, "noop_max": 0})
        environments.reset()
        actions = np.random.default_rng(0).integers(0, 4, (60, 1)).repeat(2, axis=1)
        rows[sticky] = np.stack([environments.step(action).frame for action in actions])
    assert (rows[0.0][:, 0] == rows[0.0][:, 1]).all()
    assert (rows[0.25][:, 0] != rows[0.25][:, 1]).any()


def test_the_default_is_the_full_game():
    assert envs.make("Qbert", 1).protocol == PROTOCOLS["full-game"] == Protocol()


def test_options_change_fields():
    environments = envs.make("Qbert", 1, protocol="noop30", options={"max_frames": 400})
    assert environments.protocol == dataclasses.replace(PROTOCOLS["noop30"], max_frames=400)


def test_an_unknown_protocol_lists_the_known():
    with pytest.raises(ValueError, match=r"'dqn'.*full-game, published, machado, noop30"):
        envs.make("Qbert", 1, protocol="dqn")


@pytest.mark.parametrize("name", ["Catch", "CartPole-v1"])
def test_protocols_are_for_atari(name):
    assert envs.make(name, 1, protocol="full-game").name == name
    with pytest.raises(ValueError, match="'machado' is for Atari games"):
        envs.make(name, 1, protocol="machado")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corridor": 3}, "unknown Atari option 'corridor'.*sticky"),
        ({"sticky": 1.5}, "sticky.*1.5"),
        ({"noop_max": -1}, "noop_max.*-1"),
        ({"frame_skip": 0}, "frame_skip.*0"),
        ({"max_frames": 0}, "max_frames.*0"),
        ({"score": "lives"}, "score.*'lives'"),
        *(
            ({"flicker": value}, f"flicker must be from 0 to 1, got {value!r}")
            for value in (-0.1, 1.01, float("nan"), "half", True, None)
        ),
        ({"sticky": "often"}, "sticky.*'often'"),
        ({"sticky": False}, "sticky.*False"),
        ({"noop_max": 10.0}, "noop_max.*whole number.*10.0"),
        ({"frame_skip": "four"}, "frame_skip.*whole number.*'four'"),
        ({"max_pool": 1}, "max_pool must be true or false, got 1"),
        *(
            ({name: 10**10}, f"{name} must be .* at most .*{10**10}")
            for name in ("frame_skip", "frame_stack", "noop_max", "max_frames")
        ),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        envs.make("Qbert", 1, options=options)
