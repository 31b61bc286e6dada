"""Replaying a lockstep run's first updates is bit-identical, and differences are reported."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import StoppingDisplay, train

from fastweights.envs.catch import Catch
from fastweights.launch import replay
from fastweights.records.log_table import read_logs
from fastweights.records.run_folder import RunFolder
from fastweights.training.hashes import UPDATES, digest, read_hashes, write_hashes

QBERT = ("--env", "Qbert", "--stem", "shallow", "--core", "rdn", "--core-width", 16)
TINY = ("--core-heads", 2, "--core-layers", 1, "--unroll-length", 6, "--total-steps", 36)
TWO = ("--num-envs", 2, "--batch-size", 2)


@pytest.fixture(scope="module")
def catch(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert train(folder, "catch", "--total-steps", 400) == 0  # 20 updates
    return folder / "catch"


@pytest.fixture
def copy(catch, tmp_path) -> Path:
    return Path(shutil.copytree(catch, tmp_path / "copy"))


def replayed(capsys, *arguments: object) -> tuple[int, str]:
    """Return the command's exit code and its last line."""
    capsys.readouterr()
    try:
        code = replay.main([*map(str, arguments)])
    except SystemExit as exit_:
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1
        return exit_.code, said
    return code, capsys.readouterr().out.splitlines()[-1]


def change_hash(run: Path, update: int, name: str) -> None:
    hashes = read_hashes(run)
    rows = list(hashes.updates)
    rows[update - 1] = rows[update - 1]._replace(**{name: "0" * 32})
    write_hashes(run, type(hashes)(tuple(rows), hashes.conditions))


def change_meta(run: Path, change: Callable[[dict], object]) -> None:
    meta = json.loads((run / "meta.json").read_text())
    change(meta["args"])
    (run / "meta.json").write_text(json.dumps(meta))


def contents(run: Path) -> dict[Path, tuple[int, bytes]]:
    files = (path for path in run.rglob("*") if path.is_file())
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_the_first_updates_are_recorded_with_their_conditions(catch):
    with (catch / "hashes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["update"]) for row in rows] == list(range(1, UPDATES + 1))
    assert [int(row["step"]) for row in rows] == list(range(20, 20 * UPDATES + 1, 20))
    assert rows[0]["threads"] == "1" and rows[0]["torch"] == torch.__version__
    assert len({row["weights"] for row in rows}) == len({row["rollout"] for row in rows}) == UPDATES


def test_a_replay_is_identical_and_leaves_the_run_alone(catch, capsys):
    before = contents(catch)
    assert replayed(capsys, catch) == (0, "identical: 10 updates, 200 agent steps")
    assert replayed(capsys, catch, "--updates", 2) == (0, "identical: 2 updates, 40 agent steps")
    assert contents(catch) == before


def test_real_qbert_is_identical(tmp_path, capsys):
    assert train(tmp_path, "qbert", *QBERT, *TINY, *TWO) == 0
    assert replayed(capsys, tmp_path / "qbert") == (0, "identical: 3 updates, 36 agent steps")


@pytest.mark.parametrize("name", ["rollout", "weights"])
def test_a_difference_is_named_by_its_update(copy, name, capsys):
    change_hash(copy, 3, name)
    code, said = replayed(capsys, copy)
    assert code == 1
    assert said.startswith(f"first difference: update 3, {name}; no known cause")
    assert replayed(capsys, copy, "--updates", 2)[0] == 0


def test_another_seed_differs_from_the_first_rollout_on(copy, capsys):
    change_meta(copy, lambda options: options.update(seed=2))
    code, said = replayed(capsys, copy)
    assert code == 1 and said.startswith("first difference: update 1, rollout and weights")


def test_what_a_gpu_replayed_is_launched_on_a_cpu(copy, capsys):
    change_meta(copy, lambda options: options.update(cuda_graphs=True))
    assert replayed(capsys, copy)[0] == 0


def test_known_reasons_are_named(copy, capsys):
    hashes = read_hashes(copy)
    was = hashes.conditions | {"torch": "1.2.3", "processor": "an abacus"}
    write_hashes(copy, type(hashes)(hashes.updates, was))
    assert replayed(capsys, copy)[0] == 0  # different conditions alone are no difference
    change_hash(copy, 3, "weights")
    said = replayed(capsys, copy)[1]
    assert f"torch {torch.__version__} (was 1.2.3)" in said and "(was an abacus)" in said
    assert "threads" not in said and "code" not in said


def test_a_resumed_run_keeps_the_hashes_of_its_beginning(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fastweights.experiments.agents.run.ProgressDisplay", StoppingDisplay)
    assert train(tmp_path, "half", "--total-steps", 400) == 130
    monkeypatch.undo()
    before = (tmp_path / "half" / "hashes.csv").read_bytes()
    assert before.count(b"\n") == 2
    assert train(tmp_path, "half", "--total-steps", 400, "--resume", tmp_path / "half") == 0
    assert (tmp_path / "half" / "hashes.csv").read_bytes() == before
    assert replayed(capsys, tmp_path / "half")[0] == 0


def test_what_cannot_be_replayed_is_one_line(copy, tmp_path, capsys):
    assert "holds no run" in replayed(capsys, tmp_path / "nowhere")[1]
    assert "must lie in [1, 10]" in replayed(capsys, copy, "--updates", 11)[1]
    (copy / "hashes.csv").write_text("update,step\n1,2\n")
    assert "is damaged" in replayed(capsys, copy)[1]
    row = "update,step,rollout,weights,threads\n1,20,a,b\n"  # too short
    (copy / "hashes.csv").write_text(row)
    assert "do not include its number of threads" in replayed(capsys, copy)[1]
    (copy / "hashes.csv").unlink()
    assert replayed(capsys, copy)[0] == 2
    assert "has no hashes.csv" in replayed(capsys, copy)[1]
    change_meta(copy, lambda options: options.update(colour="red"))
    assert "colour" in replayed(capsys, copy)[1]
    RunFolder.create(tmp_path, "lists", {"task_name": "list_ops"}).finish()
    assert "is a run of list_ops, not of an agent" in replayed(capsys, tmp_path / "lists")[1]


class SpoiltOnce(Catch):
    """A game with a single reward that is too large for a finite loss."""

    steps = 0

    def step(self, actions):
        observation, reward, *rest = super().step(actions)
        self.steps += 1
        return observation, reward + np.float32(1e30 if self.steps == 7 else 0), *rest


def test_a_refused_update_is_replayed_as_refused(register_game, tmp_path, capsys):
    register_game("SpoiltOnce-v0", vector_entry_point=SpoiltOnce)
    spoilt = ("--env", "SpoiltOnce-v0", "--reward-clipping", "none", "--total-steps", 100)
    assert train(tmp_path, "run", *spoilt) == 0
    assert read_logs(tmp_path / "run")["refused_updates"] == [0, 1, 1, 1, 1]
    first, second, *_ = read_hashes(tmp_path / "run").updates
    assert first.weights == second.weights and second.step == 40
    assert replayed(capsys, tmp_path / "run") == (0, "identical: 5 updates, 100 agent steps")


def test_an_asynchronous_run_is_refused(tmp_path, capsys):
    assert train(tmp_path, "free", "--schedule", "asynchronous", "--total-steps", 40) == 0
    assert not (tmp_path / "free" / "hashes.csv").exists()
    code, said = replayed(capsys, tmp_path / "free")
    assert code == 2 and "is asynchronous" in said


def test_a_digest_sees_names_dtypes_shapes_and_bytes():
    one = {"a": torch.zeros(2, 3), "state": (torch.ones(1), ())}
    others = (
        {"b": torch.zeros(2, 3), "state": (torch.ones(1), ())},
        {"a": torch.zeros(3, 2), "state": (torch.ones(1), ())},
        {"a": torch.zeros(2, 3, dtype=torch.int32), "state": (torch.ones(1), ())},
        {"a": torch.zeros(2, 3), "state": ((), torch.ones(1))},
        {"a": torch.zeros(2, 3), "state": (torch.full((1,), 2.0), ())},
    )
    assert len({digest(tensors) for tensors in (one, *others)}) == 1 + len(others)
    wide = torch.arange(6.0).view(2, 3)
    assert digest({"a": wide.t().contiguous().t()}) == digest({"a": wide})
    assert digest({"a": torch.tensor(True), "b": torch.zeros(2, dtype=torch.bfloat16)})


def test_a_replay_joins_no_cluster_that_the_file_names(copy, capsys):
    change_meta(copy, lambda args: args.update(engine="ray", ray_address="127.0.0.1:1"))
    code, said = replayed(capsys, copy)
    assert (code, "identical" in said) == (0, True)
