"""The rules of test games: what a protocol changes, what stays as in training, and limits."""

import pytest

from fastweights.evaluation.rules import longest_test, rules_for_testing
from fastweights.training.options import RunOptions


@pytest.mark.parametrize(
    ("protocol", "sticky", "noops", "score", "cap"),
    [
        ("full-game", 0.0, 30, "game", 108_000),
        ("published", 0.0, 30, "life", 108_000),
        ("machado", 0.25, 0, "game", 108_000),
        ("noop30", 0.0, 30, "game", 108_000),
        ("trained", 0.5, 30, "game", 108_000),
    ],
)
def test_what_a_protocol_means_in_a_test(protocol, sticky, noops, score, cap):
    """Only the protocol "trained" keeps the training's stickiness; frame stacks always stay."""
    trained = RunOptions(env="Qbert", env_options=("sticky=0.5", "frame_stack=2"))
    rules = rules_for_testing(trained, protocol).resolved("Qbert")
    assert (rules.sticky, rules.noop_max, rules.score, rules.max_frames) == (
        sticky,
        noops,
        score,
        cap,
    )
    assert rules.frame_stack == 2 and not rules.full_action_set
    assert rules_for_testing(trained, protocol, 400).resolved("Qbert").max_frames == 400
    assert rules_for_testing(trained, protocol, 0).resolved("Qbert").max_frames is None


@pytest.mark.parametrize("protocol", ["full-game", "published", "machado", "noop30", "trained"])
def test_an_agent_sees_and_acts_under_every_protocol_as_in_training(protocol):
    trained = {"frame_skip": 8, "max_pool": False, "frame_stack": 2, "full_action_set": True}
    words = tuple(f"{name}={value}" for name, value in trained.items())
    rules = rules_for_testing(RunOptions(env="Qbert", env_options=words), protocol)
    resolved = rules.resolved("Qbert")
    assert {name: getattr(resolved, name) for name in trained} == trained


@pytest.mark.parametrize("protocol", ["full-game", "machado", "trained"])
def test_an_agent_of_flickering_pictures_is_tested_on_flickering_pictures(protocol):
    trained = RunOptions(env="Pong", env_options=("flicker=0.5", "frame_stack=1"))
    rules = rules_for_testing(trained, protocol).resolved("Pong")
    assert (rules.flicker, rules.frame_stack) == (0.5, 1)


@pytest.mark.parametrize("protocol", ["full-game", "trained"])
def test_options_of_a_test_replace_rules_but_not_what_the_agent_sees(protocol):
    trained = RunOptions(env="Pong", env_options=("flicker=0.5",))
    rules = rules_for_testing(trained, protocol, 400, ("flicker=0.1", "sticky=0.25"))
    found = rules.resolved("Pong")
    assert (found.flicker, found.sticky, found.max_frames) == (0.1, 0.25, 400)
    for wrong, says in (("frame_stack=1", "train another"), ("max_frames=9", "--max-frames")):
        with pytest.raises(ValueError, match=says):
            rules_for_testing(trained, protocol, None, (wrong,))


@pytest.mark.parametrize(
    ("env", "trained_for", "protocol", "limit"),
    [
        ("Qbert", "max_frames=400", "trained", 400),
        ("Qbert", "max_frames=400", "full-game", 108_000),
        ("Qbert", "max_frames=none", "trained", 108_000),
        ("TMaze", "corridor=3", "trained", 108_000),
        ("TMaze", "corridor=3", "full-game", 108_000),
    ],
)
def test_every_test_game_has_a_limit_unless_none_is_asked_for(env, trained_for, protocol, limit):
    options = RunOptions(env=env, env_options=(trained_for,))
    assert longest_test(options, protocol) == limit
    assert longest_test(options, protocol, 7) == 7
    assert longest_test(options, protocol, 0) is None
