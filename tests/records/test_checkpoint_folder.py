"""Which checkpoints are kept, and that `kill -9` at any moment leaves a whole one."""

import errno
import os
from pathlib import Path

import pytest
import torch
from forks import Program

from fastweights.host import atomic_files
from fastweights.host.atomic_files import link_or_copy
from fastweights.records.checkpoint_folder import CheckpointFolder
from fastweights.records.checkpoints import CheckpointError, load_checkpoint


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_the_newest_three_the_best_and_the_milestones_stay(tmp_path):
    folder = CheckpointFolder(tmp_path, milestones=(250, 10_000))
    for step, score in [(100, 1.0), (200, 5.0), (300, 2.0), (400, None), (500, float("nan"))]:
        folder.save({"value": step}, step, score)
    steps = [f"step_{step:012d}.pt" for step in (300, 400, 500)]
    assert names(tmp_path) == ["best.pt", "milestone_000000000250.pt", *steps]
    assert load_checkpoint(tmp_path / "checkpoints" / "best.pt")["step"] == 200
    assert load_checkpoint(tmp_path / "checkpoints" / "milestone_000000000250.pt")["step"] == 300
    assert load_checkpoint(tmp_path / "model.tar")["step"] == 500
    assert folder.latest().payload["value"] == 500
    assert folder.latest().warnings == ()


def test_the_best_score_survives_a_resume(tmp_path):
    CheckpointFolder(tmp_path).save({}, 100, 5.0)
    resumed = CheckpointFolder(tmp_path)
    resumed.save({}, 200, 4.0)
    assert load_checkpoint(resumed.best_path)["step"] == 100
    resumed.save({}, 300, 6.0)
    assert load_checkpoint(resumed.best_path)["step"] == 300
    assert CheckpointFolder(tmp_path).best_score == 6.0


def test_a_score_of_few_games_is_the_best_only_until_one_of_enough(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step, score in [(100, 9.0), (200, 8.0)]:
        folder.save({}, step, score, provisional=True)
    assert load_checkpoint(folder.best_path)["step"] == 200
    resumed = CheckpointFolder(tmp_path)
    for step, score in [(300, 1.0), (400, 0.5), (500, 2.0)]:
        resumed.save({}, step, score)
        assert load_checkpoint(resumed.best_path)["step"] == (500 if step == 500 else 300)


@pytest.mark.parametrize(
    ("score", "provisional", "best"),
    [(6.0, False, 200), (4.0, False, 100), (6.0, True, 100), (None, False, 100)],
)
def test_a_kill_before_the_link_to_the_best_is_repaired(score, provisional, best, tmp_path):
    CheckpointFolder(tmp_path).save({}, 100, 5.0)
    killed = CheckpointFolder(tmp_path)
    killed.save({}, 200, score, provisional=provisional)
    link_or_copy(tmp_path / "checkpoints" / "step_000000000100.pt", killed.best_path)
    resumed = CheckpointFolder(tmp_path)
    resumed.mend_best(resumed.latest())
    assert load_checkpoint(resumed.best_path)["step"] == best


def test_checkpoints_at_multiples_of_a_number_of_steps_stay(tmp_path):
    for step in (60, 120, 180, 210, 520):
        CheckpointFolder(tmp_path, milestones=(), keep_every=100).save({}, step)
    kept = {path.name: load_checkpoint(path)["step"] for path in tmp_path.glob("*/milestone_*")}
    assert kept == {
        "milestone_000000000100.pt": 120,
        "milestone_000000000200.pt": 210,
        "milestone_000000000500.pt": 520,
    }


def test_a_milestone_stays_the_first_at_or_after_it(tmp_path):
    for step in (200, 300):
        CheckpointFolder(tmp_path, milestones=(200,)).save({}, step)
    assert load_checkpoint(tmp_path / "checkpoints" / "milestone_000000000200.pt")["step"] == 200


@pytest.mark.parametrize(
    ("resumed_at", "kept"),
    [
        (60, {}),
        (110, {}),
        (120, {100: 120}),
        (180, {100: 120}),
        (520, {100: 120, 200: 210, 500: 520}),
    ],
)
def test_milestones_of_another_past_do_not_stay(resumed_at, kept, tmp_path):
    for step in (60, 120, 180, 210, 520):
        CheckpointFolder(tmp_path, milestones=(), keep_every=100).save({}, step)
    CheckpointFolder(tmp_path, milestones=(), keep_every=100).rewind(resumed_at)
    paths = tmp_path.glob("*/milestone_*")
    found = {int(path.stem.split("_")[1]): load_checkpoint(path)["step"] for path in paths}
    assert found == kept


def test_a_damaged_milestone_is_replaced_once_the_run_passes_it_again(tmp_path):
    for step in (50, 100):
        CheckpointFolder(tmp_path, milestones=(100,)).save({"weights": torch.ones(9)}, step)
    milestone = tmp_path / "checkpoints" / "milestone_000000000100.pt"
    content = bytearray(milestone.read_bytes())
    content[content.index(torch.ones(9).numpy().tobytes())] ^= 1
    with milestone.open("r+b") as file:  # in place: other links to it are damaged, too
        file.write(content)
    resumed = CheckpointFolder(tmp_path, milestones=(100,))
    found = resumed.latest().payload["step"]
    resumed.rewind(found)
    resumed.save({"weights": torch.ones(9)}, 100)
    assert found == 50 and load_checkpoint(milestone)["step"] == 100


def test_damaged_checkpoints_are_passed_over_with_a_warning_each(tmp_path):
    folder = CheckpointFolder(tmp_path)
    paths = [folder.save({"weights": torch.ones(100)}, step) for step in (1, 2, 3)]
    paths[2].write_bytes(b"")
    paths[1].write_bytes(paths[1].read_bytes()[:300])
    found = folder.latest()
    assert found.path == paths[0] and found.payload["step"] == 1
    assert len(found.warnings) == 2
    assert str(paths[2]) in found.warnings[0] and "empty" in found.warnings[0]
    paths[0].write_text("no")
    with pytest.raises(CheckpointError, match="empty"):
        folder.latest()


def test_a_checkpoint_that_may_not_be_read_is_not_passed_over(tmp_path, monkeypatch):
    """It may be whole, and the next save after an older checkpoint would delete it."""
    folder = CheckpointFolder(tmp_path)
    folder.save({}, 1), folder.save({}, 2)
    opened = Path.open

    def refused(path, *mode):
        if path.name == "step_000000000002.pt" and mode == ("rb",):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *mode)

    monkeypatch.setattr(Path, "open", refused)
    (tmp_path / "model.tar").unlink()
    with pytest.raises(CheckpointError, match="Permission denied"):
        folder.latest()


def test_the_future_that_a_rewound_run_left_does_not_come_back(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step in (100, 200, 300):
        folder.save({}, step)
    folder.save({}, 150)
    assert folder.latest().payload["step"] == 150
    assert names(tmp_path) == ["step_000000000100.pt", "step_000000000150.pt"]


def test_without_hard_links_copies_do(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    CheckpointFolder(tmp_path, milestones=(1,)).save({}, 5, 1.0)
    for name in ("model.tar", "checkpoints/best.pt", "checkpoints/milestone_000000000001.pt"):
        assert load_checkpoint(tmp_path / name)["step"] == 5


def test_saving_the_same_step_twice_leaves_no_leftover(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for score in (1.0, 2.0):
        folder.save({}, 5, score)
    assert names(tmp_path) == ["best.pt", "step_000000000005.pt"]
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", "model.tar"}
    assert load_checkpoint(folder.best_path)["score"] == 2.0


def test_leftovers_of_a_killed_process_are_ignored_and_go_with_the_next_save(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save({}, 1)
    leftovers = [tmp_path / "checkpoints" / ".partial-7.step_000000000002.pt"]
    leftovers.append(tmp_path / ".partial-7.model.tar")
    for leftover in leftovers:
        leftover.write_bytes(b"half")
    resumed = CheckpointFolder(tmp_path)
    assert resumed.latest().payload["step"] == 1
    resumed.save({}, 2)
    assert not any(leftover.exists() for leftover in leftovers)


def test_an_empty_run_is_one_line(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        CheckpointFolder(tmp_path).latest()
    assert not any(tmp_path.iterdir())


def test_a_run_without_checkpoints_is_not_suggested_again(tmp_path):
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(CheckpointError, match="ended before its first or had --disable-checkpoint"):
        CheckpointFolder(tmp_path).latest()


# A child saves in a loop and reports each finished save. It is killed after a random time.
KILLED_AGAIN_AND_AGAIN = """
import os, random, signal, sys, time, torch
from pathlib import Path
from fastweights.host import atomic_files
from fastweights.host.atomic_files import link_or_copy
from fastweights.records.checkpoint_folder import CheckpointFolder
from fastweights.records import load_checkpoint
run = Path(sys.argv[1])
torch.set_num_threads(1)  # its threads do not survive a fork
weights = torch.arange(300_000.0)

def save_for_ever(report):
    folder = CheckpointFolder(run, milestones=(30,))
    step = folder.latest().payload["step"] if (run / "model.tar").exists() else 0
    while True:
        step += 1
        folder.save({"weights": weights + step}, step, score=step % 7)
        os.write(report, b"%d\\n" % step)

leftovers = attempt = saves = 0
while attempt < 8 or (min(leftovers, saves) < 3 and attempt < 100):
    attempt += 1
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        save_for_ever(writing)
    os.close(writing)
    reports = os.fdopen(reading, "rb")
    first = reports.readline() if attempt % 2 else b""  # killed before a save is done, or after
    time.sleep(random.Random(attempt).uniform(0.02, 0.15))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the child ended by itself"
    reported = (first + reports.read()).split(b"\\n")[:-1]
    saves += len(reported)
    leftovers += len(list(run.rglob(".partial-*")))
    for path in [*run.glob("checkpoints/*.pt"), *run.glob("model.tar")]:
        if not path.name.startswith(".partial-"):
            load_checkpoint(path)
    if reported:
        found = CheckpointFolder(run).latest()
        step = found.payload["step"]
        assert found.warnings == () and step in (int(reported[-1]), int(reported[-1]) + 1)
        assert torch.equal(found.payload["weights"], weights + step)
print("saves", saves, "leftovers", leftovers)
"""


def test_kill_9_at_any_moment_leaves_whole_checkpoints(tmp_path):
    done = Program(KILLED_AGAIN_AND_AGAIN, tmp_path).end()
    assert done.returncode == 0, done.stderr
    _, saves, _, leftovers = done.stdout.split()
    assert int(saves) > 0
    assert int(leftovers) > 0, "no kill hit a save, so this test checks nothing"


def test_the_published_readings_are_kept(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step in range(50_000_000, 250_000_001, 50_000_000):
        folder.save({}, step)
    steps = [f"step_{millions:06d}000000.pt" for millions in (150, 200, 250)]
    milestones = [f"milestone_{millions:06d}000000.pt" for millions in (50, 200)]
    assert names(tmp_path) == [*milestones, *steps]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_the_full_disk_error_names_the_remaining_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_files, "partial_name", _partial)
    (tmp_path / "checkpoints").mkdir()
    folder = CheckpointFolder(tmp_path)

    def refused(step: int) -> str:
        with pytest.raises(CheckpointError, match="No space left on device") as caught:
            folder.save({}, step)
        return str(caught.value)

    folder._opened = True  # keeps the link to the full device that `fill_up` makes
    fill_up(tmp_path / "checkpoints" / "step_000000000001.pt")
    assert "step_000000000001.pt" in (line := refused(1)) and "; the run has no other" in line
    folder.save({}, 1)
    fill_up(tmp_path / "checkpoints" / "step_000000000002.pt")
    assert (
        "step_000000000002.pt" in (line := refused(2)) and "; the checkpoint of step 1 is" in line
    )
    assert names(tmp_path) == ["step_000000000001.pt"]


def fill_up(path: Path) -> None:
    """Redirect the next write of `path` to a device that answers as a full disk does."""
    _partial(path).symlink_to("/dev/full")


def _partial(path: Path) -> Path:
    return path.with_name(f".partial-7.{path.name}")
