"""The benchmark of waiting threads: environment variables, competitors, resuming, the table."""

import json
import os
from pathlib import Path

import pytest

from benchmarks import shared_machine
from benchmarks.shared_machine import Case, competitors, main, measure, page, table


def test_a_policy_replaces_the_caller_s_own(monkeypatch):
    seen = []
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setenv("KMP_BLOCKTIME", "7")
    monkeypatch.setattr(shared_machine, "_loop_elsewhere", lambda *given: seen.append(given) or 1.0)
    for policy in ("torch", "one-thread"):
        measure(("loop", 0, policy), "Qbert", 1.0)
    (all_cores, _, as_torch), (one, _, alone) = seen
    chosen = {name: as_torch[name] for name in shared_machine.WAITING_VARIABLES if name in as_torch}
    assert chosen == {"GOMP_SPINCOUNT": "300000"}
    assert all_cores == shared_machine.processors() and one == 1
    assert alone["OMP_WAIT_POLICY"] == "PASSIVE" and "KMP_BLOCKTIME" not in alone


def children() -> set[str]:
    """Return the programs that this process has started and that still run."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # the process has just ended
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.add(path.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux: reads /proc")
def test_competitors_are_there_and_gone_again():
    before = children()
    with pytest.raises(KeyError), competitors(2):
        assert len(children() - before) == 2
        raise KeyError
    assert children() == before


def test_a_loop_and_a_run_have_rates():
    assert shared_machine.loop(1, 0.01) > 0
    assert shared_machine._run("maze", 1, "TMaze", 0.01, os.environ) > 0


def test_an_interrupted_benchmark_is_continued(monkeypatch, tmp_path, capsys):
    measured: list[Case] = []
    budget = [3]

    def measure(case: Case, game: str, seconds: float) -> float:
        if len(measured) == budget[0]:
            raise KeyboardInterrupt
        measured.append(case)
        return float(len(measured))

    monkeypatch.setattr(shared_machine, "measure", measure)
    command = "--works loop --competitors 0 1 --policies torch passive --rounds 2 --name a --out"
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        main([*command.split(), str(tmp_path)])
    budget[0] = 99
    main([*command.split(), str(tmp_path)])
    a_round = [("loop", busy, policy) for busy in (0, 1) for policy in ("torch", "passive")]
    assert measured == a_round + a_round[::-1]
    stored = json.loads((tmp_path / "a.json").read_text())
    assert [row["rates"] for row in stored["rows"]] == [[1, 8], [2, 7], [3, 6], [4, 5]]
    assert (stored["env"], stored["seconds"]) == ("Qbert", 3.0)
    assert stored["machine"]["cores"] and (tmp_path / "README.md").read_text() == page(tmp_path)
    assert table(stored) in capsys.readouterr().out


def test_the_table_has_medians_and_ratios_within_rounds():
    rates = {"torch": [10.0, 100.0, 20.0], "passive": [70.0, 500.0, 160.0], "spin-100": [1000.0]}
    rows = [
        {"work": "loop", "competitors": 1, "policy": policy, "rates": found}
        for policy, found in rates.items()
    ]
    assert table({"rows": rows}).splitlines() == [
        "| work | other programs | `torch` | `spin-100` | `passive` |",
        "|---|---:|---:|---:|---:|",
        "| `loop`, passes/s | 1 | 20.0 | 1,000 | 160 (7.00×) |",
    ]


MACHINE = {"processor": "Z80", "vectors": "none", "cores": 1, "torch": "2.0"}
MEASURED = {
    "machine": MACHINE,
    "rows": [{"work": "loop", "competitors": 0, "policy": "torch", "rates": [2.0]}],
}


@pytest.mark.parametrize(
    ("stored", "asked", "says"),
    [
        (
            MEASURED | {"machine": MACHINE | {"processor": "MOS 6502"}},
            *("", "was measured with processor MOS 6502; choose another"),
        ),
        (MEASURED | {"env": "Pong"}, "", "was measured with env Pong; choose another"),
        (MEASURED | {"seconds": 3.0}, "--seconds 1", "was measured with seconds 3.0; choose"),
        ([], "", "is no file of this benchmark"),
        ({"machine": MACHINE}, "", "is no file of this benchmark"),
        (MEASURED | {"rows": [{"operation": "lstm"}]}, "", "is no file of this benchmark"),
        (MEASURED, "--name s/a", "--name s/a must be the name of a file"),
    ],
)
def test_another_file_is_not_continued(stored, asked, says, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shared_machine, "describe", lambda: MACHINE)
    monkeypatch.setattr(shared_machine, "measure", None)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(stored))
    with pytest.raises(SystemExit, match="2"):
        main(["--out", str(tmp_path), "--name", "a", *asked.split()])
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and says in error
    assert json.loads(path.read_text()) == stored


def test_a_file_without_game_and_seconds_is_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_machine, "describe", lambda: MACHINE)
    monkeypatch.setattr(shared_machine, "measure", lambda *how: 4.0)
    path, command = tmp_path / "a.json", "--works loop --competitors 0 --policies torch --rounds 2"
    path.write_text(json.dumps(MEASURED))
    main([*command.split(), "--out", str(tmp_path), "--name", "a", "--seconds", "7"])
    found = json.loads(path.read_text())
    assert found["rows"][0]["rates"] == [2.0, 4.0] and set(found) == {"machine", "rows"}


def test_the_page_leaves_other_files_out(tmp_path):
    contents = {"a": MEASURED, "list": [], "other": {"machine": {}, "rows": []}}
    contents["none"] = MEASURED | {"rows": []}
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "folder.json").mkdir()
    said = page(tmp_path)
    assert [line for line in said.splitlines() if line.startswith("## ")] == ["## a", "## none"]
    assert "Rounds: 1." in said and "Rounds: 0." in said


def test_the_published_page_is_that_of_the_published_files():
    folder = Path(__file__).parents[2] / "docs/results/shared_machine"
    assert page(folder) == (folder / "README.md").read_text()
