"""Several learners of one run: equal to one learner and to each other; their failures."""

import json
import math
import os
import re
from pathlib import Path

import pytest
import torch
from forks import FORKS, Program
from ports import free_port
from replica_runs import CASES
from small_runs import WALL_CLOCK

from fastweights.agents.replicas import Alone
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.training.replicas import Replicas

pytestmark = pytest.mark.accidents
HERE = Path(__file__).parent
LONG_ONES = ("four", "mean-one", "mean-two", "stopped", "other-killed-asynchronous", "ray")
MINUTE = 60  # seconds for which a learner is stopped
SOON = dict.fromkeys(
    ("interrupted", "long-update", "reuse-interrupted", "games-before", "games-between"), 5
)
SOON |= dict.fromkeys(("first-killed", "other-killed", "accident"), 10)


class Runs:
    """Exit codes, seconds, run folders and output of each case."""

    def __init__(self, folder: Path, cases: list[str]):
        self.folder = folder
        done = Program(HERE / "replica_runs.py", folder, MINUTE, *cases).end(400)
        assert done.returncode == 0, done.stderr
        self.ends = {end["case"]: end for end in map(json.loads, done.stdout.splitlines())}

    def codes(self, case: str) -> list[int]:
        return self.ends[case]["codes"]

    def said(self, case: str, rank: int) -> str:
        """Return a learner's output, without lines about slow kernels on this machine."""
        lines = (self.folder / f"{case}.{rank}").read_text().splitlines(keepends=True)
        return "".join(line for line in lines if "no C++ compiler found" not in line)

    def weights(self, case: str, rank: int) -> dict[str, torch.Tensor]:
        return torch.load(self.folder / f"{case}.{rank}.weights", weights_only=True)

    def logs(self, case: str) -> dict[str, list]:
        return read_logs(self.folder / case)

    def saved_step(self, case: str) -> int:
        return load_checkpoint(self.folder / case / "model.tar")["step"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"), [case for case in CASES if case not in LONG_ONES])


@pytest.fixture(scope="module")
def long_runs(tmp_path_factory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"), [*LONG_ONES, "one"])


def assert_one_run(runs: Runs, one: str, several: str) -> None:
    """Check equal games and actions, and losses and weights that are equal up to rounding."""
    logs, theirs = runs.logs(one), runs.logs(several)
    assert logs["step"] == theirs["step"] and len(logs["step"]) >= 4
    same = ("games", "lives", "recent_full_game_return", "learning_rate", "policy_lag")
    for name in same:
        assert logs[name] == theirs[name], name
    # Whole but for steps that the KL limit shortened.
    assert logs["gradient_steps"] == pytest.approx(theirs["gradient_steps"], rel=1e-3)
    for name in set(logs) - set(WALL_CLOCK):
        if name.endswith(("_loss", "_norm", "_kl", "_fraction")):
            assert logs[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-4), name
    # 1 minus a ratio of variances, which are small differences of large sums.
    explained, same = logs["explained_variance"], theirs["explained_variance"]
    assert explained == pytest.approx(same, rel=1e-2, abs=1e-4)
    for name, tensor in runs.weights(one, 0).items():
        torch.testing.assert_close(runs.weights(several, 0)[name], tensor, rtol=1e-3, atol=1e-4)


def assert_replicas_are_equal(runs: Runs, case: str) -> None:
    first = runs.weights(case, 0)
    for rank in range(1, CASES[case][0]):
        for name, tensor in runs.weights(case, rank).items():
            assert torch.equal(tensor, first[name]), (rank, name)


@pytest.mark.parametrize("where", ["", "atari-", "reuse-", "appo-"])
def test_two_learners_make_the_run_of_one(where, runs):
    assert runs.codes(f"{where}two") == [0, 0], runs.said(f"{where}two", 0)
    assert_one_run(runs, f"{where}one", f"{where}two")
    assert_replicas_are_equal(runs, f"{where}two")


def test_each_learner_draws_its_own_random_numbers(runs):
    """Dropout would otherwise drop the same units of all shares of a batch."""
    one, other = (torch.load(runs.folder / f"two.{rank}.random") for rank in range(2))
    assert not torch.equal(one, other)


def test_the_kl_limit_shortened_a_first_step_and_left_other_batches_whole(runs):
    made = runs.logs("reuse-two")["gradient_steps"]
    assert 0 < min(made) < 1 and max(made) == 4


def test_two_learners_have_the_unit_of_values_of_all_streams(runs):
    one, two = (runs.weights(f"reuse-{count}", 0)["value.scale"] for count in ("one", "two"))
    assert one > 0.01 and two == pytest.approx(one.item(), rel=1e-5)


@pytest.mark.faults
@pytest.mark.parametrize(("one", "several"), [("one", "four"), ("mean-one", "mean-two")])
def test_four_learners_and_mean_losses_equal_one_learner(one, several, long_runs):
    assert_one_run(long_runs, one, several)
    assert_replicas_are_equal(long_runs, several)


def test_only_the_first_learner_prints_and_writes_the_run(runs):
    assert runs.said("two", 1) == ""
    assert "2 learners with 4 of each batch" in runs.said("two", 0)
    assert runs.saved_step("two") == 400


@pytest.mark.parametrize(("case", "passes"), [("asynchronous", 1), ("asynchronous-reuse", 4)])
def test_asynchronous_learners_stay_equal_and_count_every_step(case, passes, runs):
    assert runs.codes(case) == [0, 0], runs.said(case, 0)
    logs = runs.logs(case)
    assert logs["step"] == list(range(40, 401, 40)) and logs["gradient_steps"] == [passes] * 10
    assert_replicas_are_equal(runs, case)


STOPPED = ["interrupted", "long-update", "reuse-interrupted", "games-between"]


@pytest.mark.parametrize("case", STOPPED)
def test_a_signal_in_an_update_stops_all_before_it_is_made(case, runs):
    assert runs.codes(case) == [130, 130], runs.said(case, 0)
    assert runs.saved_step(case) == max(runs.logs(case)["step"]) == 80
    assert_replicas_are_equal(runs, case)
    saved = load_checkpoint(runs.folder / case / "model.tar")["model_state_dict"]
    assert all(torch.equal(saved[name], w) for name, w in runs.weights(case, 0).items())


def test_a_long_update_is_given_up_after_the_gradient_that_was_under_way(runs):
    made = [runs.folder / f"long-update.{rank}.gradients" for rank in range(2)]
    assert [len(path.read_text()) for path in made] == [2, 2]  # of four


def test_a_signal_in_the_firsts_test_games_before_training_stops_all(runs):
    assert runs.codes("games-before") == [130, 130], runs.said("games-before", 1)
    assert runs.saved_step("games-before") == 0
    assert "to resume:" in runs.said("games-before", 0) and not runs.said("games-before", 1)


@pytest.mark.parametrize(
    ("case", "codes"),
    [("first-killed", [-9, 2]), ("other-killed", [2, -9]), ("accident", [2, 1])],
)
def test_if_one_learner_is_lost_the_others_end_soon_with_a_reason(case, codes, runs):
    assert runs.codes(case) == codes
    left = codes.index(2)
    said = runs.said(case, left)
    assert "error: another learner of this run has ended" in said and "Traceback" not in said
    assert re.search(r"error seen here: .*peer", said)
    assert "saved at " not in runs.said(case, 1)  # only the first learner saves
    if left == 0:  # two updates were made, and are saved
        assert runs.saved_step(case) == max(runs.logs(case)["step"]) == 80


def test_a_loss_after_an_update_leaves_that_update_in_log_and_checkpoint(runs):
    assert runs.codes("late-killed") == [2, -9]
    assert runs.logs("late-killed")["step"] == [40, 80, 120]
    assert runs.saved_step("late-killed") == 120


@pytest.mark.faults
@pytest.mark.parametrize(("case", "seconds"), SOON.items())
def test_all_learners_end_within_seconds(case, seconds, runs):
    assert runs.ends[case]["seconds"] < seconds


@pytest.mark.faults
def test_learners_with_actors_of_their_own_in_ray(long_runs):
    pytest.importorskip("ray")
    assert long_runs.codes("ray") == [0, 0], long_runs.said("ray", 0)
    assert long_runs.logs("ray")["step"] == list(range(40, 401, 40))
    assert_replicas_are_equal(long_runs, "ray")


@pytest.mark.faults
def test_a_loss_in_the_asynchronous_schedule_ends_it_too(long_runs):
    assert long_runs.codes("other-killed-asynchronous") == [2, -9]


@pytest.mark.faults
def test_a_learner_may_be_stopped_for_a_minute(long_runs):
    assert long_runs.codes("stopped") == [0, 0]
    assert long_runs.ends["stopped"]["seconds"] > MINUTE
    assert_one_run(long_runs, "one", "stopped")


def test_a_batch_that_is_not_finite_for_one_is_refused_by_all(runs):
    assert runs.codes("not-finite") == [0, 0], runs.said("not-finite", 0)
    logs = runs.logs("not-finite")
    assert logs["step"] == list(range(40, 401, 40))
    assert logs["refused_updates"] == [0, 0] + 8 * [1]
    assert logs["updates"] == [1, 2, 2, *range(3, 10)]
    assert math.isnan(logs["total_loss"][2]) and math.isfinite(logs["total_loss"][3])
    assert_replicas_are_equal(runs, "not-finite")


def test_diverging_weights_of_learners_are_noticed(runs):
    assert runs.codes("apart") == [1, 1]
    assert "the learners' weights have diverged" in runs.said("apart", 0)
    saved = load_checkpoint(runs.folder / "apart" / "model.tar")["step"]
    assert saved == 0, "weights that differ between learners must not be saved"


def test_rows_arrive_from_all_however_many_they_are():
    counts, port = ((0, 1), (64, 65), (3, 200), (0, 0)), free_port()
    with FORKS.Pool(2) as pool:
        places = [(rank, port, counts) for rank in range(2)]
        found = pool.starmap_async(gathered_by, places, chunksize=1).get(60)
    expected = [[[rank, i] for rank in range(2) for i in range(each[rank])] for each in counts]
    assert found == [expected, expected]


def gathered_by(rank: int, port: int, counts: tuple[tuple[int, int], ...]) -> list:
    """Return the rows that this learner of two gathers; `counts` are the rows of each learner."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    replicas = Replicas(rank, 2, rank, 2)
    with replicas.joined(torch.device("cpu")):
        return [
            replicas.gather([(rank, i) for i in range(each[rank])], columns=2) for each in counts
        ]


def test_shares_must_be_equal(runs):
    assert runs.codes("uneven") == [2, 2, 2]
    assert runs.said("uneven", 0) == (
        "error: --num-envs 8 is not a multiple of the 3 learners that torchrun started: "
        "try --num-envs 9\n"
    )


def test_each_learner_of_a_machine_takes_its_next_gpu():
    cuda, second = torch.device("cuda"), torch.device("cuda", 1)
    beside = Replicas(rank=3, count=4, local_rank=1, local_count=2)
    assert beside.device(cuda, "--device") == second
    assert beside.device(torch.device("cpu"), "--device") == torch.device("cpu")
    with pytest.raises(ValueError, match="--device cuda:1 is a single GPU for the 2 learners"):
        beside.device(second, "--device")
    far = Replicas(rank=1, count=2, local_rank=0, local_count=1)
    assert far.device(cuda, "--device") == torch.device("cuda", 0)
    assert far.device(second, "--device") == Replicas().device(second, "--device") == second
    assert Replicas().device(cuda, "--device") == cuda


def test_a_single_learner_is_unaffected(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    alone, tensor, payload = Replicas.from_environment(), torch.ones(2), {"a": 1}
    assert (alone.rank, alone.count, alone.leads) == (0, 1, True)
    for replicas in (alone, Alone()):
        replicas.sum([tensor])
    assert torch.equal(tensor, torch.ones(2))
    assert alone.gather([(1, 2)], 2) == [[1, 2]]
    assert alone.broadcast(payload) is payload
    assert alone.share(5, "--num-envs") == range(5)
