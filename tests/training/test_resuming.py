"""`--auto-resume` for jobs that are started again, and runs that make no progress."""

import contextlib
import json
import shutil
import signal
from contextlib import contextmanager

import numpy as np
import pytest
import small_runs
import torch
from small_runs import assert_same_run, logged, train

from fastweights.agents.learner import Learner
from fastweights.envs.catch import Catch
from fastweights.evaluation import training_tests
from fastweights.host.stopping import Interrupted, StopRequests
from fastweights.kernels import requested_backend
from fastweights.records.checkpoints import load_checkpoint, save_checkpoint
from fastweights.records.metrics import Metrics

AGAIN = ("--auto-resume", "--total-steps", 200)


def interrupted(folder, xpid, monkeypatch, *options) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "fastweights.experiments.agents.run.ProgressDisplay", small_runs.StoppingDisplay
        )
        assert train(folder, xpid, *options) == 130


def test_the_same_command_begins_goes_on_and_finds_nothing_left_to_do(
    tmp_path, monkeypatch, capsys
):
    interrupted(tmp_path, "job", monkeypatch, *AGAIN)
    assert logged(tmp_path / "job")["step"] == [20]
    assert train(tmp_path, "job", *AGAIN) == 0
    assert logged(tmp_path / "job")["step"] == list(range(20, 201, 20))
    capsys.readouterr()
    assert train(tmp_path, "job", *AGAIN) == 0
    assert "has finished its 200 agent steps" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "job" / "meta.json").read_text())["resumed"]) == 1


def test_a_run_killed_before_it_recorded_its_end_is_marked_finished(tmp_path, capsys):
    """`kill -9` between the last checkpoint and the end in meta.json leaves such a run."""
    assert train(tmp_path, "job", *AGAIN) == 0
    path, before = tmp_path / "job" / "meta.json", logged(tmp_path / "job")

    def again(**changes) -> dict:
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        assert train(tmp_path, "job", *AGAIN) == 0
        assert "has finished its 200 agent steps" in capsys.readouterr().out
        return json.loads(path.read_text())

    killed = again(successful=False, date_end=None)
    assert killed["successful"] and killed["date_end"]
    assert not again(successful=False)["successful"]  # its end is on record, a failure
    assert logged(tmp_path / "job") == before


def test_a_finished_run_of_other_options_is_not_this_one(tmp_path, capsys):
    assert train(tmp_path, "job", *AGAIN) == 0
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "job", *AGAIN, "--seed", 7)
    assert "--seed 7 (was 1)" in capsys.readouterr().err


def test_another_preset_is_another_run(tmp_path, monkeypatch, capsys):
    interrupted(tmp_path, "job", monkeypatch, *AGAIN, "--preset", "plain")
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "job", *AGAIN, "--preset", "quick")
    assert "--objective ppo (was vtrace)" in capsys.readouterr().err
    used, update = set(), Learner.update

    def listen(self, rollout):
        used.add(requested_backend())
        return update(self, rollout)

    monkeypatch.setattr(Learner, "update", listen)
    assert train(tmp_path, "job", *AGAIN, "--preset", "plain") == 0
    assert used == {"reference"}


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_another_layout_of_pictures_and_other_kernels_compute_the_same(
    optimizer, tmp_path, monkeypatch
):
    pictures = ("--env-options", "pictures=true", "--stem", "shallow_norm", "--core", "lstm")
    options = (*pictures, "--core-width", 16, "--optimizer", optimizer, "--total-steps", 200)
    assert train(tmp_path, "whole", *options) == 0
    interrupted(tmp_path, "job", monkeypatch, *options)
    changes = ("--no-channels-last", "--kernels", "reference")
    assert small_runs.atari.main(["--resume", str(tmp_path / "job"), *changes]) == 0
    theirs = small_runs.weights(tmp_path / "whole")
    for name, weight in small_runs.weights(tmp_path / "job").items():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-3, atol=1e-5)


def test_a_partial_checkpoint_is_ignored(tmp_path, monkeypatch):
    """`kill -9` during the first checkpoint leaves such a file."""
    interrupted(tmp_path, "job", monkeypatch, *AGAIN, "--disable-checkpoint")
    (tmp_path / "job" / "checkpoints").mkdir()
    (tmp_path / "job" / "checkpoints" / ".partial-7.step_000000000020.pt").write_bytes(b"PK")
    assert train(tmp_path, "whole", "--total-steps", 200) == 0
    assert train(tmp_path, "job", *AGAIN, "--disable-checkpoint") == 0
    assert logged(tmp_path / "job")["step"] == logged(tmp_path / "whole")["step"]


@pytest.mark.parametrize("again", ["--resume", "--auto-resume"])
def test_a_run_that_was_stopped_before_its_first_update_goes_on(again, tmp_path, monkeypatch):
    def stop(*given) -> None:
        raise Interrupted(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("fastweights.experiments.agents.run.train", stop)
        assert train(tmp_path, "job", "--total-steps", 200) == 130
    assert load_checkpoint(tmp_path / "job" / "model.tar")["step"] == 0
    assert not (tmp_path / "job" / "checkpoints" / "best.pt").exists()
    options = (again, tmp_path / "job") if again == "--resume" else AGAIN
    assert train(tmp_path, "job", *options) == 0
    assert train(tmp_path, "whole", "--total-steps", 200) == 0
    assert_same_run(tmp_path / "job", tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_checkpoint_waits_for_it(number, tmp_path, monkeypatch, capsys):
    def signalled(*given):
        assert (tmp_path / "my job" / "meta.json").exists()
        signal.raise_signal(number)
        return Metrics(*given)

    with monkeypatch.context() as patch:
        patch.setattr("fastweights.experiments.agents.run.Metrics", signalled)
        assert train(tmp_path, "my job", "--total-steps", 200) == 128 + number
    said = capsys.readouterr().out
    assert "saved at 0 agent steps; to resume:\n  python" in said
    assert f"--resume '{tmp_path / 'my job'}'\n" in said
    monkeypatch.setenv("HOME", str(tmp_path))
    assert small_runs.atari.main(["--resume=~/my job/checkpoints"]) == 0
    assert train(tmp_path, "whole", "--total-steps", 200) == 0
    assert_same_run(tmp_path / "my job", tmp_path / "whole")


def test_a_run_without_checkpoint_says_how_to_begin_it_again(tmp_path, monkeypatch, capsys):
    options = ("--total-steps", 200, "--disable-checkpoint")
    interrupted(tmp_path, "job", monkeypatch, *options)
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        small_runs.atari.main(["--resume", str(tmp_path / "job")])
    (said,) = capsys.readouterr().err.splitlines()
    start = f"error: --resume {tmp_path / 'job'}: the run ended before its first checkpoint; "
    assert said.startswith(start)
    added = said.removeprefix(start + "to restart it, add ")
    added = added.removesuffix(" to its original options")
    assert train(tmp_path, "job", *options, *added.split()) == 0


def test_auto_resume_equals_resume(tmp_path, monkeypatch):
    for xpid in ("one", "two"):
        interrupted(tmp_path, xpid, monkeypatch, "--total-steps", 200)
    assert small_runs.atari.main(["--resume", str(tmp_path / "one")]) == 0
    assert train(tmp_path, "two", *AGAIN) == 0
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_a_run_that_ended_before_its_first_checkpoint_begins_again(tmp_path, monkeypatch):
    interrupted(tmp_path, "job", monkeypatch, "--total-steps", 200, "--disable-checkpoint")
    assert train(tmp_path, "whole", "--total-steps", 200) == 0
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "job", "--total-steps", 200)
    assert train(tmp_path, "job", *AGAIN) == 0
    assert_same_run(tmp_path / "job", tmp_path / "whole")


def test_a_run_that_begins_again_records_its_own_options_and_hashes(tmp_path, monkeypatch):
    interrupted(tmp_path, "job", monkeypatch, "--total-steps", 200, "--disable-checkpoint")
    run = tmp_path / "job"
    assert (run / "hashes.csv").exists()
    assert train(tmp_path, "job", *AGAIN, "--schedule", "asynchronous") == 0
    assert not (run / "hashes.csv").exists()
    (again,) = json.loads((run / "meta.json").read_text())["resumed"]
    assert again["args"]["schedule"] == "asynchronous"


def test_a_finished_run_without_its_checkpoints_folder_is_finished(tmp_path, capsys):
    assert train(tmp_path, "job", *AGAIN) == 0
    shutil.rmtree(tmp_path / "job" / "checkpoints")
    before = (tmp_path / "job" / "logs.csv").read_bytes()
    capsys.readouterr()
    assert train(tmp_path, "job", *AGAIN) == 0
    assert "has finished its 200 agent steps" in capsys.readouterr().out
    assert (tmp_path / "job" / "logs.csv").read_bytes() == before


def test_a_finished_run_without_checkpoints_keeps_its_log(tmp_path, capsys):
    assert train(tmp_path, "job", *AGAIN, "--disable-checkpoint") == 0
    files = {path: path.read_bytes() for path in (tmp_path / "job").glob("*.*")}
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "job", *AGAIN, "--disable-checkpoint")
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: {tmp_path / 'job'} has finished and has no checkpoint")
    assert {path: path.read_bytes() for path in files} == files


def test_another_run_of_that_name_is_refused(tmp_path, monkeypatch, capsys):
    without = ("--total-steps", 200, "--disable-checkpoint")
    interrupted(tmp_path, "job", monkeypatch, *without, "--seed", 2)
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "job", *AGAIN)
    assert "contradict --resume: --seed 1 (was 2)" in capsys.readouterr().err
    interrupted(tmp_path, "saved", monkeypatch, "--total-steps", 200, "--seed", 2)
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "saved", *AGAIN, "--seed", 1)
    assert "contradict --resume: --seed 1 (was 2)" in capsys.readouterr().err


def test_auto_resume_needs_a_name(capsys):
    with pytest.raises(SystemExit, match="2"):
        small_runs.atari.main(["--auto-resume"])
    assert "--auto-resume needs --xpid" in capsys.readouterr().err


class SpoiltCatch(Catch):
    """A game with rewards that, from a step on, are too large for a finite loss."""

    steps = 0

    def __init__(self, num_envs=1, render_mode=None, spoilt_after=30):
        super().__init__(num_envs, render_mode)
        self.spoilt_after = spoilt_after

    def step(self, actions):
        observation, reward, *rest = super().step(actions)
        self.steps += 1
        if self.steps > self.spoilt_after:
            reward = np.full_like(reward, 1e30)
        return observation, reward, *rest


SPOILT = ("--env", "Spoilt-v0", "--reward-clipping", "none")


@pytest.fixture
def _spoilt_env(register_game):
    register_game("Spoilt-v0", vector_entry_point=SpoiltCatch)


@pytest.mark.usefixtures("_spoilt_env")
def test_a_run_that_diverges_keeps_its_weights_and_ends_with_one_line(tmp_path, capsys):
    options = (*SPOILT, "--total-steps", 100_000, "--max-refused-updates", 4)
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "spoilt", *options)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("error: 4 batches in a row gave a loss or gradient")
    assert said.endswith(str(tmp_path / "spoilt" / "logs.csv"))
    logs = logged(tmp_path / "spoilt")
    assert logs["refused_updates"] == 6 * [0] + [1, 2, 3, 4]
    assert logs["step"] == list(range(20, 201, 20))
    payload = load_checkpoint(tmp_path / "spoilt" / "model.tar")
    assert (payload["step"], payload["scheduler_state_dict"]["updates"]) == (200, 6)
    assert all(weight.isfinite().all() for weight in payload["model_state_dict"].values())
    resumed = torch.load(tmp_path / "spoilt" / "model.tar", weights_only=True)
    assert resumed["scheduler_state_dict"]["refused"] == 4


@pytest.mark.usefixtures("_spoilt_env")
def test_where_no_update_was_made_the_learning_rate_is_not_blamed(tmp_path, capsys):
    options = (*SPOILT, "--env-options", "spoilt_after=0", "--total-steps", 100_000)
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "spoilt", *options, "--max-refused-updates", 4)
    said = capsys.readouterr().err
    assert said.startswith("error: all 4 updates gave a loss or gradient")
    assert "The learning rate is not the cause" in said


@pytest.mark.usefixtures("_spoilt_env")
def test_a_run_whose_every_update_was_refused_has_failed(tmp_path, capsys):
    """The run is shorter than the limit of refused updates; it counts as failed, not finished."""
    options = (*SPOILT, "--env-options", "spoilt_after=0", "--total-steps", 60)
    for again in ((), ("--auto-resume",)):
        with pytest.raises(SystemExit, match="2"):
            train(tmp_path, "spoilt", *options, *again)
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith("error: all 3 updates gave a loss or gradient that is not finite")
        assert said.endswith(str(tmp_path / "spoilt" / "logs.csv"))
    assert logged(tmp_path / "spoilt")["refused_updates"] == [1, 2, 3]


def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch, capsys):
    update = Learner.update

    def spoil(self, rollout):
        losses = update(self, rollout)
        if self.updates == 4:
            next(self.network.parameters()).data[0] = float("inf")
        return losses

    monkeypatch.setattr(Learner, "update", spoil)
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "run", "--total-steps", 200, "--checkpoint-minutes", 1e-6)
    assert "weights that are not finite" in capsys.readouterr().err
    payload = load_checkpoint(tmp_path / "run" / "model.tar")
    assert payload["step"] == 60
    assert all(weight.isfinite().all() for weight in payload["model_state_dict"].values())


def test_a_run_stopped_in_its_first_test_games_goes_on(tmp_path, monkeypatch, capsys):
    play = training_tests.play

    def told_to_stop(*given, **named):
        signal.raise_signal(signal.SIGTERM)
        return play(*given, **named)

    options = ("--total-steps", 200, "--evaluate-episodes", 2)
    with monkeypatch.context() as patch:
        patch.setattr("fastweights.evaluation.training_tests.play", told_to_stop)
        assert train(tmp_path, "run", *options) == 128 + signal.SIGTERM
    assert f"--resume {tmp_path / 'run'}" in capsys.readouterr().out
    assert small_runs.atari.main(["--resume", str(tmp_path / "run")]) == 0
    assert train(tmp_path, "whole", *options) == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert "before training" in capsys.readouterr().out


@contextmanager
def interruptible():
    """Let Ctrl-C interrupt as in a terminal, also if the tests run behind a shell's `&`."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_same_signal_twice_is_one_request(monkeypatch):
    """A batch system signals all processes, and torchrun forwards its signal, too."""
    now = [100.0]
    monkeypatch.setattr("fastweights.host.stopping.time.monotonic", lambda: now[0])
    with interruptible(), StopRequests() as stop:
        signal.raise_signal(signal.SIGINT)
        now[0] += 1.0
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted, match="SIGINT"):
            stop.check()
        stop.check()
        now[0] += 1.5
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_terminal_that_closes_stops_a_run_unless_it_was_started_by_nohup(handler):
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with StopRequests() as stop:
            signal.raise_signal(signal.SIGHUP)
            closed = pytest.raises(Interrupted, match="SIGHUP")
            with closed if handler == signal.SIG_DFL else contextlib.nullcontext():
                stop.check()
        assert signal.getsignal(signal.SIGHUP) == handler
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_best_checkpoint_is_kept_with_its_score(tmp_path):
    assert train(tmp_path, "job", "--total-steps", 200) == 0
    best = load_checkpoint(tmp_path / "job" / "checkpoints" / "best.pt")
    assert best["score"] == logged(tmp_path / "job")["recent_full_game_return"][-1]
    assert best["step"] == 200


def test_the_best_checkpoint_survives_a_kill_before_it_was_linked(tmp_path, monkeypatch):
    interrupted(tmp_path, "job", monkeypatch, *AGAIN)
    checkpoints = tmp_path / "job" / "checkpoints"
    newest = checkpoints / "step_000000000020.pt"
    save_checkpoint(load_checkpoint(newest) | {"score": 100.0, "provisional": False}, newest)
    (checkpoints / "best.pt").unlink(missing_ok=True)
    assert train(tmp_path, "job", *AGAIN) == 0
    assert load_checkpoint(checkpoints / "best.pt")["step"] == 20


@pytest.mark.usefixtures("_spoilt_env")
def test_the_first_remedy_for_a_state_that_grows_is_its_feature_map(tmp_path, capsys):
    core = ("--core", "delta_net", "--core-feature-map", "elu")
    options = ("--env", "Spoilt-v0", "--total-steps", 100_000, "--max-refused-updates", 1, *core)
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "grows", *options)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "--core-feature-map elu let the state grow" in error
    assert error.index("softmax, elu_sum, unit") < error.index("Else try a smaller --learning-rate")
