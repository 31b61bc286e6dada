"""`--init-from`: a new run that begins with the weights of another."""

import shutil
from dataclasses import replace

import pytest
import torch

from fastweights.experiments import run_agent
from fastweights.host import UserError
from fastweights.launch import atari, list_ops, replay
from fastweights.records import load_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.training import open_agent

SMALL = ["--preset", "maze", "--evaluate-episodes", "0", "--core-width", "8", "--num-envs", "4"]
SMALL += ["--batch-size", "4", "--unroll-length", "8"]


def run(folder, *more: str) -> int:
    words = [*SMALL, "--total-steps", "96", "--savedir", str(folder.parent), "--xpid", folder.name]
    return atari.main([*words, *more])


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "teacher"
    assert run(folder) == 0
    return folder


def first_weights(folder) -> dict[str, torch.Tensor]:
    path = folder / "checkpoints" / "step_000000000000.pt"
    return load_checkpoint(path)["model_state_dict"]


def test_the_weights_are_the_other_run_s_and_all_else_is_new(teacher, tmp_path, capsys):
    learned = open_agent(teacher).network.state_dict()
    pupil = tmp_path / "pupil"
    assert run(pupil, "--init-from", str(teacher), "--env-options", "corridor=3") == 0
    said = capsys.readouterr().out
    assert said.startswith("weights of rdn on TMaze after 96 agent steps: ")
    begun = first_weights(pupil)
    assert all(torch.equal(begun[name], weight) for name, weight in learned.items())
    assert not all(torch.equal(first_weights(teacher)[name], learned[name]) for name in learned)
    assert read_logs(pupil / "logs.csv")["step"] == [32, 64, 96]
    assert (
        read_logs(pupil / "logs.csv")["learning_rate"]
        == (read_logs(teacher / "logs.csv")["learning_rate"])
    )


def test_such_a_run_is_replayed_and_needs_the_other_run_only_to_begin(
    teacher, tmp_path, capsys, monkeypatch
):
    moved = tmp_path / "moved"
    shutil.copytree(teacher, moved)
    assert run(tmp_path / "pupil", "--init-from", str(moved)) == 0
    monkeypatch.setenv("HOME", str(tmp_path))
    assert replay.main([str(tmp_path / "pupil"), "--init-from=~/moved"]) == 0
    again = [str(tmp_path / "pupil"), "--init-from", str(moved)]
    assert replay.main(again) == 0
    shutil.rmtree(moved)
    assert open_agent(tmp_path / "pupil").step == 96
    for words, says in (
        (again, f"no checkpoint at {moved}"),
        (again[:1], f"began with the weights of {moved}: name them with --init-from"),
        ([str(teacher), "--init-from", str(teacher)], "began with new weights: leave --init-from"),
    ):
        with pytest.raises(SystemExit):
            replay.main(words)
        assert says in capsys.readouterr().err


def test_a_replay_knows_that_the_other_run_has_trained_on(teacher, tmp_path, capsys):
    moving = shutil.copytree(teacher, tmp_path / "moving")
    assert run(tmp_path / "pupil", "--init-from", str(moving)) == 0
    assert run(tmp_path / "further", "--total-steps", "192") == 0
    for checkpoint in moving.glob("checkpoints/*"):
        checkpoint.unlink()
    shutil.copy(tmp_path / "further" / "model.tar", moving / "model.tar")
    capsys.readouterr()
    assert replay.main([str(tmp_path / "pupil"), "--init-from", str(moving)]) == 1
    said = capsys.readouterr().out
    assert "first difference: update 1" in said and "possible causes: init_from " in said


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--core", "delta_rnn"], "its core is rdn, not delta_rnn"),  # equal shapes
        (["--core-width", "16"], "its --core-width is 8, not 16"),
        (["--core-feature-map", "unit"], "its --core-feature-map is "),
        (["--reset-inputs"], "its --reset-inputs is False, not True"),
        (["--value-scale", "2"], "its --value-scale is 1.0, not 2.0"),
        (
            ["--objective", "ppo", "--normalize-values"],
            "its --normalize-values is False, not True",
        ),
        (["--env", "Catch"], "has shape [256, 4], not [256, 50]"),
        (["--feed-last-action"], "core.embed.weight has shape [8, 257], not [8, 260]"),
        (["--init-from", "nowhere"], "nowhere: "),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_another_network_is_refused_in_one_line(more, says, teacher, tmp_path, capsys):
    with pytest.raises(SystemExit) as exit_:
        run(tmp_path / "pupil", "--init-from", str(teacher), *more)
    line = capsys.readouterr().err
    assert exit_.value.code == 2 and line.count("\n") == 1 and says in line
    assert not (tmp_path / "pupil").exists()


def test_a_model_of_sequences_is_no_agent(tmp_path, capsys):
    words = ["--depth", "2", "--max-arguments", "2", "--core", "lstm", "--core-width", "8"]
    sizes = ["--epochs", "1", "--train-size", "8", "--valid-size", "4", "--test-size", "4"]
    where = ["--savedir", str(tmp_path), "--xpid", "lists"]
    assert list_ops.main([*words, *sizes, *where]) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit):
        run(tmp_path / "pupil", "--init-from", str(tmp_path / "lists"))
    assert "belongs to a run of" in capsys.readouterr().err


def test_latest_means_the_run_that_is_latest_before_the_new_one(teacher, tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    assert run(runs / "first") == 0
    monkeypatch.chdir(tmp_path)
    assert run(runs / "second", "--init-from", "runs/latest") == 0
    monkeypatch.chdir(teacher)
    assert replay.main([str(runs / "second"), "--init-from", str(runs / "first")]) == 0


def test_latest_may_be_the_resumed_run_itself(teacher, tmp_path, monkeypatch, capsys):
    runs = tmp_path / "runs"
    monkeypatch.chdir(tmp_path)
    assert run(runs / "first") == 0
    more = ["--init-from", "runs/latest", "--auto-resume", "--preset", "maze"]
    assert run(runs / "second", *more) == 0
    assert (runs / "latest").resolve() == runs / "second"
    assert run(runs / "second", *more) == 0
    assert "has finished" in capsys.readouterr().out
    for later in (runs / "second" / "model.tar", *(runs / "second" / "checkpoints").glob("*96.pt")):
        later.unlink()
    assert open_agent(runs / "second").step == 0
    assert run(runs / "second", *more) == 0
    gone_on = open_agent(runs / "second")
    assert (gone_on.step, gone_on.options.init_from) == (96, runs / "first")
    with pytest.raises(SystemExit):
        run(runs / "second", *more, "--init-from", str(teacher))
    assert "contradict --resume: --init-from" in capsys.readouterr().err


def test_python_names_the_other_run_in_full_too(teacher, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(teacher.parent)
    begun = replace(open_agent(teacher).options, init_from="teacher", savedir=tmp_path, xpid="new")
    assert run_agent(begun) == 0
    assert open_agent(tmp_path / "new").options.init_from == teacher.resolve()
    assert run(tmp_path / "new", "--auto-resume", "--init-from", "teacher") == 0
    assert "has finished" in capsys.readouterr().out


def test_python_cannot_resume_with_other_options_or_elsewhere(teacher, tmp_path):
    saved = open_agent(teacher)
    shorter = replace(saved.options, env_options={"corridor": 5})
    elsewhere = replace(saved.options, xpid="pupil")
    for options, says in ((shorter, "--env-options"), (elsewhere, "--init-from")):
        with pytest.raises(UserError, match=says):
            run_agent(options, saved)
    with pytest.raises(UserError, match="has finished its 96 agent steps"):
        run_agent(saved.options, saved)
    begun = replace(shorter, init_from=teacher, savedir=tmp_path, xpid="pupil")
    assert run_agent(begun) == 0
    assert open_agent(tmp_path / "pupil").options.env_options == ("corridor=5",)


def test_a_resumed_run_keeps_its_first_weights(teacher, tmp_path, capsys):
    assert run(tmp_path / "pupil", "--init-from", str(teacher), "--seed", "2") == 0
    with pytest.raises(SystemExit):
        run(tmp_path / "pupil", "--auto-resume", "--seed", "2")
    assert "--init-from" in capsys.readouterr().err
    again = ("--init-from", str(teacher), "--auto-resume", "--seed", "2")
    assert run(tmp_path / "pupil", *again) == 0
    assert "has finished" in capsys.readouterr().out
