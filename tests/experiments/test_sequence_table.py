"""A paper's table: its figures, the runs it uses, its files, gaps, stopping."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fastweights.evaluation.published_scores import PublishedScore
from fastweights.experiments.published import algorithmic
from fastweights.experiments.rows import Row
from fastweights.experiments.sequences.cells import SequenceRun
from fastweights.experiments.sequences.figures import figures
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.experiments.sequences.presets import SEQUENCE_PRESETS, small
from fastweights.experiments.sequences.table import (
    SequenceTableOptions,
    make_sequence_table,
    paper_table,
)
from fastweights.host.errors import UserError
from fastweights.host.folder_lock import FolderLock
from fastweights.launch import code_execution, list_ops
from fastweights.records.log_table import read_logs
from fastweights.tasks import CodeExecution, ListOps
from tests.evaluation.drawings import words_in

SCRIPT = Path(list_ops.__file__)
RESULTS = Path(__file__).parents[2] / "docs" / "results"
EMPTY = {"loss": 1.0, "sequence_accuracy": 0.625, "answer_accuracy": 0.625}


def test_the_papers_figures():
    scores = {(s.task, s.table, s.setting or s.measure, s.row): s.mean for s in algorithmic()}
    assert scores["code_execution", 2, "variables=3", "RDN"] == 92.6
    assert scores["list_ops", 2, "depth=15", "LSTM"] == 24.4
    assert scores["code_execution", 5, "variables=5", "Delta RNN"] == 99.3
    assert scores["code_execution", 6, "variables=5", "Delta RNN 8 x 128"] == 94.1
    assert scores["list_ops", 7, "depth=15", "LSTM 4096"] == 72.2
    assert scores["a_n_b_n_c_n", 1, "bin1 sequence_accuracy", "e-LSTM"] == 22.0
    assert scores["parity", 1, "bin0 sequence_accuracy", "DeltaNet"] == 97.3
    assert scores["reset_dyck_1", 2, "bin1 sequence_accuracy", "Linear"] == 41.1
    assert len(scores) == len(algorithmic()) == 48 + 7 * 6 * 2 + 4 * 2 * 2


def test_a_tables_figures_are_the_presets_with_its_settings_and_sizes():
    by_row = {figure.published.row: figure for figure in figures("code_execution", 6, "paper")}
    deep = by_row["Delta RNN 8 x 128"].options
    assert deep.task == CodeExecution(variables=5)
    assert (deep.core_layers, deep.core_width, deep.core_heads) == (8, 128, 8)
    assert round(sum(p.numel() for p in deep.build().parameters()) / 1e6, 1) == 1.3
    short, long = (figures("list_ops", 2, "small", epochs)[0].options for epochs in (3, 300))
    assert (short.task.depth, short.trainer.epochs, long.trainer.epochs) == (5, 3, 30)


@pytest.mark.parametrize(
    ("command", "number", "row", "sizes", "largest"),
    [
        ("code_execution", 6, "RDN 4 x 256", (2, 64, 4, 256), 1.2e5),
        ("code_execution", 6, "RDN 8 x 128", (4, 32, 2, 64), 1.2e5),
        ("code_execution", 6, "LSTM 512", (None, 256, None, None), 4.5e5),
        ("list_ops", 7, "LSTM 4096", (None, 512, None, None), 1.5e6),
    ],
)
def test_the_small_preset_is_small_where_a_table_is_about_sizes(
    command, number, row, sizes, largest
):
    (figure,) = (
        figure for figure in figures(command, number, "small") if figure.published.row == row
    )
    options = figure.options
    found = (options.core_layers, options.core_width, options.core_heads, options.core_feedforward)
    assert found == sizes and not figure.has_papers_sizes
    assert sum(p.numel() for p in options.build().parameters()) < largest
    named = " ".join(f"{n}={size}" for n, size in figure.sizes.items())
    found = replace(ROW, labels=ROW.labels | {"row": row}, details={"sizes": figure.sizes})
    line = markdown(found)[2]
    assert f"| {row} (here {named}) |" in line


@pytest.mark.parametrize("preset_name", ["paper", "small"])
def test_figures_of_one_training_share_it_across_tables(preset_name):
    runs = [
        {
            figure.published.row: figure.run(1)
            for figure in figures("code_execution", number, preset_name)
            if figure.published.setting == "variables=5"
        }
        for number in (2, 6)
    ]
    assert runs[1]["RDN 4 x 256"] == runs[0]["RDN"]
    assert runs[1]["LSTM 256"] == runs[0]["LSTM"]
    assert len({run.name for run in runs[1].values()}) == 8
    small, large = (runs[1][row].name for row in ("LSTM 256", "LSTM 512"))
    assert large == small.replace("-lstm-", f"-lstm-width{512 if preset_name == 'paper' else 256}-")


def test_what_a_tables_cells_take_from_the_command_line(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "fastweights.launch.cli.sequence_command.make_sequence_table",
        lambda *given: asked.append(given) or 0,
    )
    given = ["--table", "2", "--preset", "small", "--device", "cpu", "--kernels", "reference"]
    monkeypatch.chdir(tmp_path)
    assert code_execution.main([*given, "--legacy-conditional-assign", "--data", "x"]) == 0
    *_, of_cells = asked[0]
    figure = figures("code_execution", 2, "small", None, of_cells)[0]
    assert (figure.options.device, figure.options.kernels) == ("cpu", "reference")
    assert figure.options.task == CodeExecution(
        variables=2, statements=25, legacy_conditional_assign=True
    )
    assert figure.options.data == tmp_path / "x"
    assert figure.run(3).name == "code_execution-legacy-variables3-lstm-seed3"


ROW = Row(
    labels={"setting": "depth=10", "row": "RDN", "core": "rdn", "measure": "test"},
    seeds=[4, 5],
    values={4: 80.0, 5: 90.0},
    published=PublishedScore(83.2, 0.9),
)


def markdown(row: Row) -> list[str]:
    return paper_table([row]).markdown([row]).splitlines()


@pytest.mark.parametrize(
    ("change", "here"),
    [
        ({}, "85.0 ± 5.0 | 80.0, 90.0"),
        ({"values": {}}, " | "),
        ({"values": {5: 70.0}, "failed": [4]}, "70.0 | failed, 70.0"),
        ({"values": {}, "failed": [4, 5]}, "failed | failed, failed"),
    ],
)
def test_markdown_has_both_figures(change, here):
    line = markdown(replace(ROW, **change))[2]
    assert line == f"| depth=10 | RDN | `rdn` | test | {here} | 83.2 ± 0.9 |"


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({}, "± here is the population standard deviation over 2 seeds (4, 5)."),
        ({"failed": [4]}, "2 seeds (4, 5), those that failed left out."),
        ({"values": {4: 80.0}, "seeds": [4]}, "Here: seed 4 alone; ± is the paper's."),
    ],
)
def test_below_the_table_stands_what_the_deviation_is(change, note):
    assert markdown(replace(ROW, **change))[-1].endswith(note)


@pytest.mark.parametrize("task", ["code_execution", "list_ops"])
def test_a_stored_table_is_what_its_runs_come_to(task):
    folder = RESULTS / "small_tasks"
    rows = [_row(plain) for plain in json.loads((folder / f"{task}_table_2.json").read_text())]
    table = paper_table(rows, f"{task}, table 2, preset small")
    stored = (folder / f"{task}_table_2.md").read_text()
    assert stored == f"# {table.title}\n\n{table.markdown(rows)}"


def _row(plain: dict) -> Row:
    values = zip(plain["seeds"], plain["percent"], strict=True)
    return Row(
        labels={name: plain[name] for name in ROW.labels},
        seeds=plain["seeds"],
        values={seed: value for seed, value in values if value is not None},
        published=PublishedScore(plain["paper_mean"], plain["paper_std"]),
        details={"sizes": plain["sizes"]},
    )


def tiny(core, task):
    options = small(core, task).to_dict()
    sizes = {"train_size": 8, "valid_size": 4, "test_size": 4}
    sizes |= {"core_width": 8, "core_heads": None if core == "lstm" else 2}
    trainer = options["trainer"] | {"epochs": 1, "batch_size": 8}
    return SequenceOptions.from_dict(options | sizes | {"trainer": trainer})


@pytest.fixture
def asked(tmp_path, monkeypatch, forked_runs):
    """Return options of a table with one cell, whose runs take a second."""
    monkeypatch.setitem(SEQUENCE_PRESETS, "tiny", tiny)
    only = {"only": ("lstm",), "settings": ("depth=10",), "jobs": 1}
    return SequenceTableOptions(seeds=(1,), runs=tmp_path / "runs", **only)


def stored(asked: SequenceTableOptions, core: str = "lstm", **changes) -> Path:
    """Store a finished run of the table's first setting, as if made by someone else."""
    folder = asked.runs / "tiny" / f"list_ops-depth10-{core}-seed1"
    folder.mkdir(parents=True)
    plain = tiny(core, ListOps(depth=10)).to_dict() | changes
    meta = {"git": {"commit": "abc"}, "args": plain}
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "result.json").write_text(json.dumps({"test": EMPTY, "valid": EMPTY}))
    return folder


def test_a_table_runs_what_is_missing_and_writes_both_figures(
    asked, tmp_path, monkeypatch, capsys, drawn
):
    stored(asked)
    monkeypatch.chdir(tmp_path)  # relative folders start at the current folder
    asked = replace(asked, runs=asked.runs.relative_to(tmp_path))
    both = replace(asked, settings=(), out=Path())
    assert make_sequence_table("list_ops", 2, "tiny", both) == 0
    said = capsys.readouterr().out
    assert "2 runs, 1 of them to do: list_ops-depth15-lstm-seed1\n" in said
    assert "finished list_ops-depth15-lstm-seed1; running: none; left: none\n" in said
    written = (tmp_path / "list_ops_table_2.md").read_text()
    assert written in said  # unchanged, in a terminal of any width
    lstm = [line for line in written.splitlines() if "`lstm`" in line]
    shown = words_in(drawn["list_ops_table_2.png"])
    assert {"one seed", "paper"} <= set(shown) and "LSTM" in " ".join(shown)
    titles = [text for text in shown if text.startswith("depth=")]
    assert [text[:8] for text in titles] == ["depth=10", "depth=15"]
    kept, trained = (line.split("|")[5].strip() for line in lstm)
    assert kept == "62.5" and re.fullmatch(r"\d+\.\d", trained)
    rows = json.loads((tmp_path / "list_ops_table_2.json").read_text())
    first, second = (row["results"][0] for row in rows if row["results"])
    assert (first["commit"], first["seed"]) == ("abc", 1)
    assert second["options"]["task"] == {"depth": 7, "max_arguments": 5}
    assert not {"savedir", "data"} & set(second["options"]) and second["seconds"] > 0
    folder = tmp_path / "runs/tiny"
    assert (folder / "list_ops-depth15-lstm-seed1/result.json").exists()
    assert not list(folder.glob("*.out"))
    assert make_sequence_table("list_ops", 2, "tiny", asked) == 0
    printed = capsys.readouterr().out
    assert "1 runs, 0 of them to do" in printed and "depth=15" not in printed


def test_rows_that_are_not_asked_for_are_filled_from_what_is_there(asked, capsys):
    stored(asked)
    stored(asked, core="delta_net")
    stored(asked, core="rdn", core_width=9)  # not a run of this table
    assert make_sequence_table("list_ops", 2, "tiny", asked) == 0
    rows = json.loads((asked.runs / "tiny" / "list_ops_table_2.json").read_text())
    measured = {row["core"]: row["percent"] for row in rows if row["percent"] != [None]}
    assert measured == {"lstm": [62.5], "delta_net": [62.5]}
    two_seeds = replace(asked, seeds=(1, 2))  # only one of which exists
    assert make_sequence_table("list_ops", 2, "tiny", two_seeds) == 0
    assert "3 runs, 1 of them to do" not in (said := capsys.readouterr().out)
    assert "2 runs, 1 of them to do: list_ops-depth10-lstm-seed2\n" in said


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seed": 2}, "--seed 1 (was 2)"),
        ({"core_width": 9}, "--core-width 8 (was 9)"),
        ({"task": {"depth": 4}}, "--depth 5 (was 4)"),
        ({"task_name": "code_execution", "task": {}}, "--task-name list_ops (was code_execution)"),
        ({"task_name": None}, "is not a run of this table"),
    ],
)
def test_a_run_of_other_options_is_not_the_tables(asked, changes, says):
    folder = stored(asked, **changes)
    with pytest.raises(UserError, match=re.escape(says)) as error:
        make_sequence_table("list_ops", 2, "tiny", asked)
    assert str(folder) in str(error.value)
    (folder / "result.json").unlink()  # a run that could be resumed is not used either
    with pytest.raises(UserError, match=re.escape(says)):
        make_sequence_table("list_ops", 2, "tiny", asked)


def test_a_run_from_elsewhere_and_of_an_earlier_version_is_the_tables(asked):
    folder = stored(asked, device="cuda", savedir="/elsewhere", xpid=None, num_threads=7)
    meta = json.loads((folder / "meta.json").read_text())
    for later in ("core_forget_bias", "core_norm", "kernels"):
        del meta["args"][later]
    (folder / "meta.json").write_text(json.dumps(meta))
    assert make_sequence_table("list_ops", 2, "tiny", asked) == 0


def test_a_transformer_s_window_is_the_longest_sequence(asked):
    asked = replace(asked, only=("transformer",))
    folder = stored(asked, core="transformer", core_window=3)
    with pytest.raises(UserError, match=r"--core-window (\d+) \(was 3\)") as error:
        make_sequence_table("list_ops", 2, "tiny", asked)
    longest = int(re.search(r"--core-window (\d+)", str(error.value))[1])
    meta = json.loads((folder / "meta.json").read_text())
    meta["args"]["core_window"] = longest
    (folder / "meta.json").write_text(json.dumps(meta))
    assert make_sequence_table("list_ops", 2, "tiny", asked) == 0


@pytest.mark.parametrize("content", ["{", "[]", '{"test": 3}', '{"test": {}}'])
def test_a_damaged_result_is_one_line(asked, content):
    (stored(asked) / "result.json").write_text(content)
    with pytest.raises(UserError, match=r"result.json is damaged .*: delete it"):
        make_sequence_table("list_ops", 2, "tiny", asked)


@pytest.mark.faults
def test_a_failed_run_is_a_gap_and_the_others_go_on(asked, capsys):
    blocked = asked.runs / "tiny" / "list_ops-depth10-lstm-seed1" / "checkpoints"
    blocked.mkdir(parents=True)
    assert make_sequence_table("list_ops", 2, "tiny", replace(asked, seeds=(1, 2))) == 2
    printed = capsys.readouterr()
    assert re.search(r"\| \d+\.\d \| failed, \d+\.\d \|", printed.out)
    (line,) = printed.err.splitlines()
    name = blocked.parent.name
    assert line.startswith(f"failed: {name}: {blocked.parent} already holds a run")
    assert "already holds" in (asked.runs / "tiny" / f"{name}.out").read_text()
    rows = json.loads((asked.runs / "tiny" / "list_ops_table_2.json").read_text())
    assert rows[0]["failed"] == [1] and [r["seed"] for r in rows[0]["results"]] == [2]


@pytest.mark.parametrize("flag", ["runs", "out"])
def test_an_impossible_folder_is_an_error_before_training(asked, flag):
    with pytest.raises(UserError, match=f"--{flag} cannot be created: {__file__}"):
        make_sequence_table("list_ops", 2, "tiny", replace(asked, **{flag: Path(__file__)}))


def test_one_table_at_a_time_fills_a_folder(asked):
    (asked.runs / "tiny").mkdir(parents=True)
    lock = FolderLock(asked.runs / "tiny")
    with pytest.raises(UserError, match=f"another table \\(process {os.getpid()} on"):
        make_sequence_table("list_ops", 2, "tiny", asked)
    lock.release()
    stored(asked)
    assert make_sequence_table("list_ops", 2, "tiny", asked) == 0


def test_a_run_that_has_finished_meanwhile_is_not_started(asked, monkeypatch, capsys):
    stored(asked)
    look, first = SequenceRun.finished.fget, iter([False])
    monkeypatch.setattr(
        SequenceRun,
        "finished",
        property(lambda run: look(run) and next(first, True)),
    )
    monkeypatch.setattr(SequenceRun, "check", lambda run: None)
    assert make_sequence_table("list_ops", 2, "tiny", asked) == 0
    said = capsys.readouterr().out
    assert "1 of them to do" in said and "started" not in said


def test_the_table_resumes_an_interrupted_run(asked):
    folder = stored(asked)
    (folder / "result.json").unlink()
    changes = {"savedir": folder.parent, "device": "cpu", "data": Path("/data")}
    run = figures("list_ops", 2, "tiny", None, changes)[0].run(1)
    where = ["--num-threads", "1", "--device", "cpu", "--data", "/data"]
    assert run.command()[2:] == ["--resume", str(folder), *where]


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_table_leaves_no_orphan_and_its_runs_go_on(tmp_path, number):
    only = ("--only", "lstm", "--settings", "depth=10", "--seeds", "1", "2", "--jobs", "1")
    words = [sys.executable, str(SCRIPT), "--table", "2", "--preset", "small", *only]
    run = tmp_path / "small" / "list_ops-depth10-lstm-seed1"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    table = subprocess.Popen(
        [*words, "--runs", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        _wait_until(lambda: (run / "logs.csv").exists() and any(read_logs(run)["step"]))
        os.kill(table.pid, number)
        said, _ = table.communicate(timeout=60)
    finally:
        left = _kill_group(table.pid)
    assert table.returncode == 128 + number and not left
    assert "stopped list_ops-depth10-lstm-seed1" in said and "the same command resumes" in said
    assert "started list_ops-depth10-lstm-seed2" not in said
    assert (run / "model.tar").exists() and not (run / "result.json").exists()
    meta = json.loads((run / "meta.json").read_text())
    assert meta["date_end"] and not meta["successful"]


def _wait_until(true) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.1)
    raise TimeoutError


def _kill_group(group: int) -> bool:
    """Kill a process group; return whether any process was left in it."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
