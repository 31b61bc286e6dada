"""Options that a run does not use are refused or named."""

from dataclasses import fields, replace

import pytest
from small_runs import GROUPS, train

from fastweights.launch.cli.atari_options import parse
from fastweights.training.options import RunOptions
from fastweights.training.unused_options import USED_BY, ignored_flags, notes_on_environment

UNKEPT = ("--evaluate-episodes", 1, "--disable-checkpoint")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--ray-address auto", "--ray-address belongs to --engine ray, and the engine is local"),
        ("--actor-cpus 2", "leave --actor-cpus out, or --engine ray"),
        ("--actor-gpus 0.5", "--actor-gpus belongs to --engine ray"),
        (
            "--engine ray --env-groups 3",
            "--env-groups belongs to --engine local, and the engine is",
        ),
        ("--engine ray --actor-device cpu", "leave --actor-device out, or --engine local"),
        ("--engine ray --schedule asynchronous", "--schedule belongs to --engine local"),
    ],
)
def test_an_option_of_the_other_engine_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        parse(arguments.split())


def test_every_objective_that_reads_an_option_is_named():
    with pytest.raises(ValueError, match="belongs to --objective ppo or appo, and the objective"):
        parse(["--objective", "vtrace", "--clip-range", "0.2"])


def test_an_environment_s_option_is_given_once():
    with pytest.raises(ValueError, match="--env-options sets corridor twice: give it once"):
        RunOptions(env="TMaze", env_options=("corridor=3", "corridor=5")).environment_options()


def test_an_environments_options_are_plain_values():
    with pytest.raises(
        ValueError, match=r"env_options: desc must be text, a number.*not \['SFG'\]"
    ):
        RunOptions(env="FrozenLake-v1", env_options={"desc": ["SFG"]})
    options = RunOptions(env="FrozenLake-v1", env_options={"is_slippery": False, "map_name": "4x4"})
    assert options.environment_options() == {"is_slippery": False, "map_name": "4x4"}


def test_ray_takes_any_number_of_environments_that_its_actors_can_share():
    ray = ("--engine", "ray", "--num-envs", "48", "--num-actors", "6")
    assert parse([*ray, "--batch-size", "32"]).run.batch_size == 32
    with pytest.raises(ValueError, match="not a multiple of --num-actors 5"):
        parse([*ray[:-1], "5"])


def test_a_run_may_go_on_with_the_other_engine():
    ray = RunOptions(engine="ray", ray_address="host:6379", num_actors=4, actor_gpus=0.5)
    assert parse(["--engine", "local"], ray).run.ray_address == "host:6379"
    local = RunOptions(schedule="asynchronous", env_groups=4, actor_device="cuda")
    moved = ["--engine", "ray", "--actor-device", "None"]
    assert parse(moved, local).run == replace(local, engine="ray", actor_device=None)


def test_what_a_schedule_does_not_use_is_listed():
    asked = RunOptions(env_groups=4, queue_size=3)
    assert ignored_flags(asked, RunOptions(), "lockstep") == ["--env-groups", "--queue-size"]
    assert ignored_flags(asked, RunOptions(env_groups=4), "lockstep") == ["--queue-size"]
    assert ignored_flags(asked, RunOptions(), "ray") == ["--env-groups"]
    assert ignored_flags(asked, RunOptions(), "asynchronous") == []
    asked = RunOptions(actor_threads=1)
    assert ignored_flags(asked, RunOptions(), "lockstep") == []
    assert ignored_flags(asked, RunOptions(), "asynchronous") == ["--actor-threads"]


def test_every_option_that_is_declared_exists():
    assert set(USED_BY) <= {field.name for field in fields(RunOptions)}


def test_the_command_names_what_it_does_not_use(tmp_path, capsys):
    once = ("--total-steps", 20)
    assert train(tmp_path, "one", "--schedule", "lockstep", "--env-groups", 3, *once) == 0
    note = "note: --env-groups has no effect in the lockstep schedule\n"
    assert note in capsys.readouterr().err
    assert train(tmp_path, "other", *GROUPS, "--env-groups", 3, *once) == 0
    assert "note:" not in capsys.readouterr().err
    assert train(tmp_path, "more", *GROUPS, "--env-groups", 9, *once) == 0
    assert "note: --env-groups 9 is reduced to 4 groups, one per" in capsys.readouterr().err
    unkept = (*UNKEPT, "--keep-every", 10)
    assert train(tmp_path, "last", "--objective", "ppo", "--bptt", 5, *once, *unkept) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 4
    assert notes[0] == "note: --bptt 5 has no effect: a rollout has 5 steps"
    assert "--objective ppo never clips" in notes[1] and "after training" in notes[3]
    assert notes[2] == "note: --keep-every keeps nothing: --disable-checkpoint saves no weights"
    small = (*GROUPS, "--minibatches", 1, "--disable-checkpoint", "--evaluate-episodes", 0)
    assert train(tmp_path, "set", "--preset", "quick", "--stem", "mlp", *small, *once) == 0
    assert "--actor-threads" not in capsys.readouterr().err  # the preset's
    # The second of two batches of one collection may be clipped.
    assert train(tmp_path, "two", "--objective", "ppo", "--batch-size", 2, *once) == 0
    assert "note:" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"env": "ALE/Pong-v5", "protocol": "machado"},
            ["sets the rules, with sticky actions at 0.25"],
        ),
        (
            {"env": "PongNoFrameskip-v4"},
            ["--protocol full-game sets the rules, with sticky actions at 0 "],
        ),
        ({"env": "Pong"}, []),
        ({"env": "CartPole-v1"}, ["CartPole-v1 is cut off after 500 steps"]),
        ({"env": "CartPole-v1", "bootstrap_truncated": True}, []),
        (
            {"env": "CartPole-v1", "env_options": {"max_episode_steps": 20}},
            ["CartPole-v1 is cut off after 20 steps"],
        ),
        ({"env": "CartPole-v1", "env_options": {"max_episode_steps": -1}}, []),
        ({"env": "TMaze"}, []),
    ],
)
def test_notes_say_what_an_environments_name_does_not(options, says):
    notes = list(notes_on_environment(RunOptions(**options)))
    assert len(notes) == len(says) and all(map(str.__contains__, notes, says))
