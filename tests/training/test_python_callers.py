"""Options as Python callers write them: NumPy's numbers, dictionaries, other games, wrong types."""

from dataclasses import replace

import numpy as np
import pytest

from fastweights.experiments import run_agent
from fastweights.host import UserError
from fastweights.records import read_meta
from fastweights.training import open_agent, preset


@pytest.fixture
def options(tmp_path):
    tiny = preset("maze", "lstm", env="Catch")
    sizes = {"num_envs": 4, "batch_size": 4, "unroll_length": 8, "core_width": 8}
    learner = replace(tiny.learner, total_steps=64)
    where = {"savedir": tmp_path, "xpid": "run", "evaluate_episodes": 0}
    return replace(tiny, **sizes, **where, learner=learner)


def test_a_preset_for_another_game_leaves_its_own_options_out():
    assert preset("maze", "rdn").env_options == ("corridor=10",)
    assert preset("maze", "rdn", env="TMaze").env_options == ("corridor=10",)
    assert preset("maze", "rdn", env="Catch").env_options == ()


def test_a_preset_s_atari_protocol_is_for_atari():
    assert preset("published", "rdn", env="Pong").protocol == "published"
    assert preset("published", "rdn", env="Catch").protocol == "full-game"


def test_numbers_of_numpy_are_numbers(options, tmp_path):
    learner = replace(options.learner, learning_rate=np.logspace(-4, -3, 2)[1])
    assert run_agent(replace(options, learner=learner, seed=np.int64(3))) == 0
    plain = read_meta(tmp_path / "run")["args"]
    assert (plain["learning_rate"], plain["seed"]) == (1e-3, 3)
    assert type(open_agent(tmp_path / "run").options.learner.learning_rate) is float


def test_options_of_the_environment_may_be_a_dictionary(options):
    longer = replace(options, env="TMaze", env_options={"corridor": 7})
    assert longer.env_options == ("corridor=7",)
    assert longer.environment_options() == {"corridor": 7}


@pytest.mark.usefixtures("shapes_unchecked")  # whose checks of types would come first
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": "1"}, "seed must be a whole number, not '1'"),
        ({"xpid": 1}, "xpid must be text or nothing, not 1"),
        ({"num_envs": 4.0}, "num_envs must be a whole number, not 4.0"),
    ],
)
def test_wrong_types_are_one_line_and_leave_nothing(change, says, options, tmp_path):
    with pytest.raises(UserError, match=says):
        run_agent(replace(options, **change))
    assert not list(tmp_path.iterdir())
