"""What an environment's constructor takes, and its options given as text."""

from typing import Optional

import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from fastweights.envs.constructors import declared_kinds, takes, value_of

GAME = "fastweights-tests/Declared-v0"


@pytest.mark.parametrize(
    ("game", "options", "is_taken"),
    [
        ("CartPole-v1", {}, True),
        ("CartPole-v1", {"sutton_barto_reward": True}, True),
        ("CartPole-v1", {"max_episode_steps": 5}, True),  # Gymnasium's own
        ("CartPole-v1", {"corridor": 3}, False),
        ("fastweights/TMaze-v0", {"corridor": 3}, True),
        ("fastweights/TMaze-v0", {"num_envs": 3}, False),  # given already
        ("fastweights/TMaze-v0", {"max_episode_steps": 5}, False),
    ],
)
def test_options_are_taken_if_they_bind_to_the_signature(game, options, is_taken):
    assert takes(game, options) == is_taken


def test_what_is_registered_with_the_environment_is_given_already(register_game):
    def make(size, **more):
        return CartPoleEnv()

    register_game(GAME, entry_point=make)
    assert not takes(GAME, {}) and takes(GAME, {"size": 1, "other": 2})
    register_game(f"{GAME[:-1]}1", entry_point=make, kwargs={"size": 1})
    assert takes(f"{GAME[:-1]}1", {})


def test_kinds_are_those_of_the_annotations(register_game):
    def make(plain, text: str, perhaps: Optional[str], other: "str | None", number: "int"):  # noqa: UP045
        return CartPoleEnv()

    register_game(GAME, entry_point=make)
    kinds = declared_kinds(GAME)
    assert [value_of("7", kind) for kind in kinds.values()] == [7, "7", "7", "7", 7]
    assert [value_of("none", kind) for kind in kinds.values()] == [None, "none", None, None, None]


def test_an_environment_that_cannot_be_imported_declares_nothing(register_game):
    register_game(GAME, entry_point="no_such_module:Game")
    assert declared_kinds(GAME) == {}
