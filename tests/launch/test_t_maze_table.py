"""The table of the T-maze: what is missing is trained, what is there kept, what fails a gap."""

import json
import sys

import pytest

from launch import atari, t_maze

SHORT = ("--num-threads", "1", "--core-width", "8", "--total-steps", "2560")
SHORT = (*SHORT, "--evaluate-episodes", "4")


def finished(runs, core, seed):
    where = ("--savedir", runs, "--xpid", f"{core}-{seed}", "--seed", seed)
    words = ("--preset", "maze", "--core", core, *SHORT, *where)
    assert atari.main([*map(str, words)]) == 0


def test_a_table_of_runs_that_are_there(tmp_path, capsys):
    finished(tmp_path, "lstm", 1)
    capsys.readouterr()
    (tmp_path / "rdn-1").mkdir()
    (tmp_path / "rdn-1" / "meta.json").write_text('{"successful": false}')  # cannot go on
    asked = ["--cores", "lstm", "rdn", "--seeds", "1", "--runs", str(tmp_path)]
    assert t_maze.main([*asked, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert "failed: rdn-1: " in said.err and said.err.count("\n") == 1
    (result,) = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (result["core"], result["seed"], len(result["returns"])) == ("lstm", 1, 4)
    won = 100 * sum(one > 0 for one in result["returns"]) / 4
    assert f"| `lstm` | {won:.1f} % | {won:.1f} ± 0.0 % |" in said.out
    assert (tmp_path / "out" / "table.md").read_text() in said.out
    assert (tmp_path / "out" / "learning_curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_gap_is_left_where_a_seed_is_missing():
    def won(core, seed):
        return {"core": core, "seed": seed, "returns": [1.0, -1.0]}

    lines = t_maze.table([won("lstm", 1), won("lstm", 2), won("rdn", 2)]).splitlines()
    assert lines[2:] == [
        "| `lstm` | 50.0 % | 50.0 % | 50.0 ± 0.0 % |",
        "| `rdn` |  | 50.0 % | 50.0 ± 0.0 % |",
    ]


def test_a_run_begins_or_goes_on(tmp_path):
    name, command = t_maze.job("rdn", 3, tmp_path)
    start = command()
    assert name == "rdn-3" and start[:2] == [sys.executable, str(t_maze.SCRIPT)]
    assert " ".join(start[2:]) == (
        f"--num-threads 1 --preset maze --core rdn --seed 3 --savedir {tmp_path} --xpid rdn-3"
    )
    (tmp_path / "rdn-3").mkdir()
    (tmp_path / "rdn-3" / "meta.json").write_text('{"successful": false}')
    assert command()[2:] == ["--num-threads", "1", "--resume", str(tmp_path / "rdn-3")]
    (tmp_path / "rdn-3" / "meta.json").write_text(
        '{"successful": true, "args": {"evaluate_episodes": 200}}'
    )
    games = tmp_path / "rdn-3" / "evaluations"
    games.mkdir()
    (games / "step_000000000000_trained_sampled_1x200_seed1000000.json").write_text("{}")
    assert command()[1:] == [
        *(str(t_maze.EVALUATE), str(tmp_path / "rdn-3"), "--episodes", "200", "--repeats", "1"),
        *("--protocol", "trained", "--action-mode", "sampled"),
    ]
    (games / "step_000000600864_trained_sampled_1x200_seed1000000.json").write_text("{}")
    assert command() is None


@pytest.mark.parametrize("twice", [["--cores", "rdn", "rdn"], ["--seeds", "1", "1"]])
def test_nothing_is_asked_for_twice(twice, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        t_maze.main([*twice, "--runs", str(tmp_path)])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "error: --cores and --seeds take each of theirs once\n"
