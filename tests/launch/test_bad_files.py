"""Wrong, huge or hostile files: commands print one error line and run nothing from them.

Each test covers a defect that the searches (test_fuzz*.py) found. See also test_damaged_records.py.
"""

import io
import json
import os
import shutil
import signal
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import gymnasium
import pytest
import torch
from small_runs import StoppingDisplay, train

from fastweights.evaluation.reports.runs import open_run
from fastweights.experiments.sequences.saved import saved_sequence_options
from fastweights.host.errors import UserError
from fastweights.host.folder_lock import FolderLock
from fastweights.launch import atari, evaluate, list_ops, replay, report, watch
from fastweights.records.checkpoint_folder import CheckpointFolder
from fastweights.records.checkpoints import CheckpointError, load_checkpoint, save_checkpoint
from fastweights.records.exports import AGENT_EXPORT
from fastweights.records.run_folder import RunFolder, read_meta
from fastweights.records.tensorboard import Scalars
from fastweights.training.saved_agent import open_agent
from tests.experiments.test_sequence_run import train as train_sequences

MODULE = "somebodys_games"
GAME = f"{MODULE}:Game-v0"


@pytest.fixture(scope="module")
def half_trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastweights.experiments.agents.run.ProgressDisplay", StoppingDisplay)
        assert train(folder, "half", "--total-steps", 400) == 130
    return folder / "half"


@pytest.fixture
def run(half_trained, tmp_path) -> Path:
    return Path(shutil.copytree(half_trained, tmp_path / "runs" / "run"))


def change(run: Path, edit: Callable[[dict], object]) -> None:
    """Edit the run's only checkpoint and its link."""
    path = CheckpointFolder(run).latest().path
    content = load_checkpoint(path)
    edit(content)
    save_checkpoint(content, path)
    shutil.copy(path, run / "model.tar")


def change_meta(run: Path, edit: Callable[[dict], object]) -> None:
    meta = read_meta(run)
    edit(meta)
    (run / "meta.json").write_text(json.dumps(meta))


def error_of(main: Callable, capsys, *arguments: object) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
        main([*map(str, arguments)])
    said = capsys.readouterr().err
    assert exit_.value.code == 2 and said.startswith("error: ") and said.count("\n") == 1, said
    return said


@pytest.fixture
def impatient():
    """Fail if anything waits for a pipe that nobody opens."""

    def fail(*_):
        raise TimeoutError("still waiting for the pipe after 20 seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)  # seconds
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# Games that import a module


@pytest.fixture
def trap(tmp_path, monkeypatch) -> Path:
    """Return a file that appears when the game's module is imported."""
    (tmp_path / "modules").mkdir()
    source = f"""
from pathlib import Path
import gymnasium
from fastweights.envs.catch import Catch
Path({str(tmp_path / "imported")!r}).touch()
gymnasium.register("Game-v0", vector_entry_point=Catch)
"""
    (tmp_path / "modules" / f"{MODULE}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    yield tmp_path / "imported"
    sys.modules.pop(MODULE, None)
    gymnasium.registry.pop("Game-v0", None)


def test_a_file_s_game_is_not_imported_until_the_command_names_it_too(run, trap, capsys):
    change(run, lambda content: content["flags"].update(env=GAME))
    change_meta(run, lambda meta: meta["args"].update(env=GAME))
    for main, flags in (
        (evaluate.main, (run, "--no-clip", "--env", "Catch")),
        (evaluate.main, (run, "--no-clip")),
        (watch.main, (run, "--live")),
        (replay.main, (run,)),
        (atari.main, ("--resume", run)),
    ):
        assert f"add --env {GAME}" in error_of(main, capsys, *flags)
    assert report.main([str(run)]) == 0
    assert not trap.exists()
    assert replay.main([str(run), "--env", GAME]) == 0
    assert trap.exists(), "the module must make the file when it is imported"
    assert atari.main(["--resume", str(run), "--env", GAME]) == 0
    assert f"evaluate.py {run} --env {GAME}" in capsys.readouterr().out


# Checkpoints


def test_a_compressed_archive_is_not_unpacked(run, tmp_path):
    path = CheckpointFolder(run).latest().path
    whole = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    with pytest.raises(CheckpointError, match="is compressed"):
        load_checkpoint(tmp_path / "a.pt")


def test_a_file_cannot_ask_for_a_network_larger_than_its_weights(run):
    change(run, lambda content: content["network"].update(frame_shape=[2**40]))
    with pytest.raises(CheckpointError, match="do not fit its network"):
        open_agent(run)


@pytest.mark.parametrize("sizes", [{"core_width": 10**9}, {"core_layers": 10**6}])
def test_absurd_sizes_are_a_line(run, sizes):
    change(run, lambda content: content["flags"].update(core="rdn", **sizes))
    with pytest.raises(CheckpointError, match="must be at most"):
        open_agent(run)


@pytest.mark.parametrize("step", ["40", 4.0, True, None, -1])
def test_a_checkpoint_without_a_count_of_steps_is_passed_over(run, step):
    folder = CheckpointFolder(run)
    good, bad = folder.latest(), run / "checkpoints" / "step_000000000400.pt"
    save_checkpoint(good.payload | {"step": step}, bad)
    found = folder.latest()
    assert found.path == good.path and str(bad) in found.warnings[0]
    with pytest.raises(CheckpointError):
        open_agent(bad)


def test_a_best_checkpoint_without_a_score_gives_way(run):
    save_checkpoint({"score": "high", "step": 1}, run / "checkpoints" / "best.pt")
    CheckpointFolder(run).save(CheckpointFolder(run).latest().payload, 40, 1.0)
    assert CheckpointFolder(run).best_score == 1.0


def wrong_shape(content: dict) -> None:
    content["optimizer_state_dict"]["state"][0]["square_avg"] = torch.zeros(1, 2, 3)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda content: content.pop("optimizer_state_dict"), "optimizer_state_dict"),
        (wrong_shape, "state belongs to another network"),
        (lambda content: content["optimizer_state_dict"]["state"].update({0: []}), "'values'"),
        (
            lambda content: content["optimizer_state_dict"]["state"][0].update(square_avg=None),
            "optimiser's state is not made of tensors and numbers",
        ),
        (
            lambda content: content["optimizer_state_dict"]["param_groups"][0].update(eps="x"),
            "optimiser has other settings",
        ),
        (lambda content: content["scheduler_state_dict"].update(steps="20"), "are not counts"),
        (lambda content: content["stats"]["metrics"].update(games=[["a", 1, 1]]), "'a'"),
        (lambda content: content["stats"].update(metrics=None), "subscriptable"),
        (lambda content: content["rng"].update(torch=torch.zeros(3)), "RNG state"),
        (lambda content: content.update(games=None), "subscriptable"),
        (lambda content: content["games"].pop("last_action"), "'last_action'"),
        (lambda content: content["games"].update(row=[torch.zeros(1)] * 3), "of shape [1] is not"),
        (lambda content: content["games"]["environments"]["game"].update(draws=[]), "zip()"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_not_resumed(run, edit, says, capsys):
    change(run, edit)
    assert says in error_of(atari.main, capsys, "--resume", run)


# Small files


def test_a_run_opens_whatever_its_meta_says_of_earlier_resumes(run):
    change_meta(run, lambda meta: meta.update(resumed="yes"))
    RunFolder.open(run).close()
    assert len(read_meta(run)["resumed"]) == 1


def test_a_report_leaves_rows_without_a_step_out(run):
    with (run / "logs.csv").open("a") as file:
        file.write("7\r\n")
    assert open_run(run).agent_steps == 20


def test_a_report_names_the_option_that_is_of_another_kind(run, capsys):
    change_meta(run, lambda meta: meta["args"].update(seed="first"))
    assert "seed must be a whole number, not 'first'" in error_of(report.main, capsys, run)


def test_an_export_of_any_depth_is_damaged(run, tmp_path):
    AGENT_EXPORT.write(open_agent(run).payload, tmp_path, "")
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="damaged"):
        open_agent(tmp_path)


# Paths


def test_a_sequence_run_ignores_folders_named_in_its_meta(tmp_path, monkeypatch):
    monkeypatch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
    assert train_sequences(tmp_path / "runs", "a") == 130
    monkeypatch.undo()
    run, outside = tmp_path / "runs" / "a", tmp_path / "outside"
    where = {"savedir": str(outside), "data": str(outside / "data"), "xpid": "../../outside/x"}
    change_meta(run, lambda meta: meta["args"].update(where, xpid=where["xpid"]))
    assert saved_sequence_options(run, "list_ops").savedir == run.parent
    assert list_ops.main(["--resume", str(run), "--num-threads", "1"]) == 0
    assert not outside.exists()


def test_an_agent_resumes_in_its_folder_whatever_its_files_name(run, tmp_path):
    outside = tmp_path / "outside"
    where = {"savedir": str(outside), "xpid": "../../outside/x"}
    change(run, lambda content: content["flags"].update(where))
    change_meta(run, lambda meta: meta.update(xpid="../../outside/x"))
    assert atari.main(["--resume", str(run), "--total-steps", "400"]) == 0
    assert evaluate.main([str(run), "--episodes", "1", "--repeats", "1", "--no-clip"]) == 0
    assert not outside.exists()
    assert {path.name for path in run.parent.iterdir()} == {"run", "latest"}


LINKS = ("checkpoints", "evaluations", "clips", "tensorboard", ".lock", "logs.csv", "out.log")


@pytest.mark.parametrize("name", LINKS)
def test_a_link_out_of_a_run_folder_is_refused_and_what_it_leads_to_untouched(
    run, name, tmp_path, capsys
):
    target, inner = tmp_path / "precious", run / name
    if inner.exists():
        inner.rename(target)
    elif "." in name:
        target.write_text("precious")
    else:
        target.mkdir()
    inner.symlink_to(target)
    before = target.read_bytes() if target.is_file() else sorted(target.rglob("*"))
    commands = [(atari.main, "--resume"), (evaluate.main, "--no-clip"), (watch.main, "--live")]
    for main, flag in (*commands, (replay.main, "--updates=1"), (report.main, "--title=x")):
        assert "out of the run folder" in error_of(main, capsys, flag, run)
    assert before == (target.read_bytes() if target.is_file() else sorted(target.rglob("*")))


def test_links_within_a_run_folder_and_to_it_are_fine(run, tmp_path):
    (run / "newest.pt").symlink_to("model.tar")
    (tmp_path / "link").symlink_to(run)
    assert open_agent(tmp_path / "link").step == 20
    assert atari.main(["--resume", str(tmp_path / "link")]) == 0


def test_a_pipe_in_a_run_folder_is_refused_and_not_waited_for(run, capsys):
    (run / "logs.csv").unlink()
    os.mkfifo(run / "logs.csv")
    assert "neither a file nor a folder" in error_of(report.main, capsys, run)


def test_a_new_run_does_not_write_through_links_in_a_folder_that_was_there(tmp_path, capsys):
    (tmp_path / "a" / "checkpoints").mkdir(parents=True)
    (tmp_path / "a" / "tensorboard").symlink_to(tmp_path)
    said = error_of(atari.main, capsys, "--env", "Catch", "--savedir", tmp_path, "--xpid", "a")
    assert "out of the run folder" in said
    Scalars(tmp_path / "b").close()


def test_a_new_run_does_not_follow_a_link_where_there_is_nothing_else(tmp_path, capsys):
    (tmp_path / "victim").write_text("precious")
    for name, target in ((".lock", "victim"), ("tensorboard", "."), ("meta.json", "nothing")):
        folder = tmp_path / name.strip(".")
        folder.mkdir()
        (folder / name).symlink_to(tmp_path / target)
        with pytest.raises(UserError, match="is a link out of the run folder"):
            RunFolder.create(tmp_path, folder.name, {})
        assert [path.name for path in folder.iterdir()] == [name]
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "nothing").exists()


def test_a_lock_is_no_link_wherever_it_leads(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".lock").symlink_to("victim")
    for lock in (
        lambda: FolderLock(tmp_path),
        lambda: RunFolder.create(tmp_path.parent, tmp_path.name, {}),
    ):
        with pytest.raises(UserError, match="is a link: remove it"):
            lock()
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("what", ["pipe", "link"])
def test_a_meta_is_not_read_before_the_folder_is_looked_at(what, tmp_path, capsys, impatient):
    """The folder contains only meta.json, because a checkpoint would be opened before it."""
    folder, target = tmp_path / "run", tmp_path / "elsewhere.json"
    folder.mkdir()
    if what == "pipe":
        os.mkfifo(folder / "meta.json")
    else:
        target.write_text('{"args": {}}')
        (folder / "meta.json").symlink_to(target)
    new = ("--env", "Catch", "--savedir", tmp_path, "--xpid", "run", "--auto-resume")
    said = "neither a file nor a folder" if what == "pipe" else "out of the run folder"
    for main, arguments in (
        (replay.main, [folder]),
        (report.main, [folder]),
        (list_ops.main, ["--resume", folder]),
        (atari.main, new),
    ):
        assert said in error_of(main, capsys, *arguments)


def test_messages_steer_no_terminal(tmp_path, capsys):
    assert "\x1b" not in error_of(evaluate.main, capsys, tmp_path / "a\x1b[2J\x07")
