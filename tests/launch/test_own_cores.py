"""A core from a user's module, `--core my_module:name`: all commands, and what they refuse."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from small_runs import StoppingDisplay, assert_same_run, train

from fastweights.cores import CORES, build_core, import_core
from fastweights.launch import (
    atari,
    evaluate,
    export,
    formal_language,
    replay,
    report,
    t_maze,
    watch,
    wikitext103,
)
from fastweights.training import open_agent
from tests.launch.test_bad_files import change, change_meta, error_of

ROOT = Path(__file__).parents[2]
CORE = "users_memory:fading"
NAMED = ("--core", CORE)
SHORT = ("--total-steps", 60, "--core-width", 8)
FEW = ("--episodes", "2", "--repeats", "1", "--num-threads", "1", "--no-clip")
ADVICE = f"is in a module that would be imported: if you trust it, add --core {CORE}"
SOURCE = """
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fastweights.cores import Core, alone, unroll_by_steps

Path(__file__).with_suffix(".imported").touch()


class Sum(NamedTuple):
    sum: Tensor


@dataclass(frozen=True, kw_only=True)
class Sizes:
    width: int = 16
    rate: float = 0.5


class Fading(Core):
    equation = "s_t = r s_(t-1) + U x_t"
    source = "a user"

    def __init__(self, input_size, config):
        super().__init__()
        self.input_size, self.output_size, self.rate = input_size, config.width, config.rate
        self.write = nn.Linear(input_size, config.width)

    def initial_state(self, batch_size):
        return Sum(self.write.weight.new_zeros(batch_size, self.output_size))

    def step(self, x, state):
        total = self.rate * state.sum + self.write(x)
        return total, Sum(total)

    unroll = unroll_by_steps


fading = alone(Fading, "Fading sum", Sizes())
slow = alone(Fading, "Slowly fading sum", Sizes(rate=0.9))
"""


@pytest.fixture
def another_process(own_module, tmp_path, monkeypatch):
    """Write the module and change to its folder; a call forgets it, as a new process would."""
    monkeypatch.chdir(tmp_path)

    def begin(source: str = SOURCE) -> None:
        own_module("users_memory", source)
        imported().unlink(missing_ok=True)

    begin()
    return begin


def imported() -> Path:
    """Return a file that exists if the module was imported."""
    return Path("users_memory.imported")


def test_a_run_is_cut_resumed_and_used_with_the_module_named_again(
    another_process, monkeypatch, capsys
):
    runs = Path("runs")
    with monkeypatch.context() as patch:
        patch.setattr("fastweights.experiments.agents.run.ProgressDisplay", StoppingDisplay)
        assert train(runs, "cut", *NAMED, *SHORT) == 130
    assert f"--resume runs/cut --core {CORE}" in capsys.readouterr().out
    meta = json.loads((runs / "cut" / "meta.json").read_text())
    assert meta["args"]["core"] == meta["network"]["core"] == CORE
    assert meta["network"]["core_options"] == {"width": 8, "rate": 0.5}
    another_process()
    assert atari.main(["--resume", "runs/cut", *NAMED]) == 0
    assert f"runs/cut --core {CORE}\n" in capsys.readouterr().out
    assert train(runs, "whole", *NAMED, *SHORT) == 0
    assert_same_run(runs / "cut", runs / "whole")
    for main, *words in (
        (evaluate.main, "runs/cut", *FEW),
        (watch.main, "runs/cut", "--frames", "2", "--out", "film.gif"),
        (export.main, "runs/cut", "--format", "safetensors", "--out", "agent"),
        (evaluate.main, "agent", *FEW),
        (replay.main, "runs/whole"),
    ):
        another_process()
        assert main([*words, *NAMED]) == 0
    another_process()
    words = ["--out", "report", "--compare", f"{CORE}:lstm"]
    assert report.main(["runs/cut", "runs/whole", *words]) == 0
    assert (
        CORE.replace("_", r"\_") in Path("report/report.md").read_text() and not imported().exists()
    )


def test_a_file_alone_imports_nothing(another_process, capsys):
    train(Path("runs"), "a", *NAMED, *SHORT)
    export.main(["runs/a", "--format", "safetensors", "--out", "agent", *NAMED])
    another_process()
    for main, *words in (
        (evaluate.main, "runs/a"),
        (evaluate.main, "runs/a/model.tar", "--core", "rdn"),
        (evaluate.main, "agent"),
        (watch.main, "runs/a"),
        (export.main, "runs/a", "--format", "safetensors"),
        (replay.main, "runs/a"),
        (atari.main, "--resume", "runs/a"),
    ):
        assert ADVICE in error_of(main, capsys, *words)
    with pytest.raises(ValueError, match="cannot be loaded"):
        open_agent(Path("runs/a"))
    assert not imported().exists()
    assert open_agent(Path("runs/a"), core=CORE).network.core.rate == 0.5
    assert imported().exists()
    said = error_of(evaluate.main, capsys, "runs/a", "--core", "users_memory:slow")
    assert f"the memory is {CORE}, not --core users_memory:slow" in said


def test_agents_with_different_memories_are_compared(another_process, capsys):
    train(Path("runs"), "a", *NAMED, *SHORT)
    train(Path("runs"), "b", "--core", "users_memory:slow", *SHORT)
    another_process()
    both = ("--core", "users_memory:slow", *NAMED)
    assert evaluate.main(["runs/a", "runs/b", *both, *FEW]) == 0
    said = capsys.readouterr().out
    assert all(f"episodes: runs/{run}/evaluations/step_000000000060" in said for run in "ab")
    another_process()
    only_one = error_of(evaluate.main, capsys, "runs/a", "runs/b", *FEW, *NAMED)
    assert "add --core users_memory:slow" in only_one


LANGUAGE = (
    *("--task", "parity", "--train-size", "40", "--valid-size", "8", "--test-size", "8"),
    *("--batch-size", "8", "--epochs", "1", "--test-lengths", "8", "--core-width", "8"),
    *("--num-threads", "1", "--xpid", "a"),
)
TEXT = (
    *("--preset", "small", "--data", "text.txt", "--updates", "2", "--evaluate-every", "2"),
    *("--columns", "2", "--span", "8", "--stride", "8", "--sample-length", "0", "--ngrams", "1"),
    *("--core-width", "8", "--num-threads", "1", "--xpid", "a"),
)


def test_a_formal_language(another_process, capsys):
    assert formal_language.main([*NAMED, *LANGUAGE]) == 0
    assert json.loads(Path("runs/a/meta.json").read_text())["args"]["core"] == CORE
    another_process()
    traced = ("--trained", "runs/a", "--trace", "0110")
    for words in (("--resume", "runs/a"), traced):
        assert ADVICE in error_of(formal_language.main, capsys, *words)
    said = error_of(formal_language.main, capsys, "--resume", "runs/a", *NAMED)
    assert "runs/a has finished" in said
    assert formal_language.main([*traced, *NAMED]) == 0
    assert "--core cannot be used with --trace" in error_of(
        formal_language.main, capsys, *traced, "--core", "rdn"
    )


def test_a_language_model(another_process, capsys):
    Path("text.txt").write_text("the memory of a text fades\n" * 40)
    assert wikitext103.main([*NAMED, *TEXT]) == 0
    another_process()
    for words in (("generate", "runs/a"), ("export", "runs/a", "out"), ("--resume", "runs/a")):
        assert ADVICE in error_of(wikitext103.main, capsys, *words)
    assert wikitext103.main(["export", "runs/a", "out", *NAMED]) == 0
    another_process()
    assert wikitext103.main(["generate", "out", "--length", "3", *NAMED]) == 0


@pytest.mark.parametrize(
    ("core", "says"),
    [
        ("no_such_memory:fading", "No module named 'no_such_memory'; installed packages, PYTH"),
        (".users_memory:fading", "begins with a dot: use the form my_module:name"),
        (":fading", "the module of ':fading' has no name: use the form my_module:name"),
        ("users_memory:fadin", "is not there: it must be a CoreKind, as built by `alone` and"),
        ("users_memory:fadin", "has fading, slow; did you mean fading?"),
        ("users_memory:Fading", "is the class Fading: it must be a CoreKind"),
        ("users_memory:torch", "is a module: it must be a CoreKind"),
        ("math:fading", "has none"),
        ("fading", "unknown core 'fading'; known: feedforward, "),
        ("fading", "; a core of your own is my_module:name"),
    ],
)
@pytest.mark.parametrize("main", [atari.main, formal_language.main, wikitext103.main])
def test_bad_names(main, core, says, another_process, capsys):
    assert says in error_of(main, capsys, "--core", core)
    assert not Path("runs").exists()


def test_grids_take_the_name_or_refuse_it_before_a_run(another_process, capsys):
    words = ("--total-steps", "1", "--cores", "users_memory:fadin")
    assert "did you mean fading?" in error_of(t_maze.main, capsys, *words)
    assert "less than one update" in error_of(t_maze.main, capsys, *words[:-1], CORE)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--core-layers", "2"), f"core '{CORE}' has no option 'layers'; it has: width, rate"),
        (("--core-rate", "0.1"), "Unrecognized options: --core-rate"),
        (("--core-width", "0"), "core option 'width' must be at least 1, not 0"),
    ],
)
def test_options_that_it_cannot_have(words, says, another_process, capsys):
    assert says in error_of(atari.main, capsys, "--env", "Catch", *NAMED, *words)
    assert not Path("runs").exists()


def test_help_describes_its_options(another_process, capsys):
    with pytest.raises(SystemExit):
        atari.main([*NAMED, "--help"])
    text = capsys.readouterr().out
    assert "--core-width INT" in text and "[16]" in text and len(text.splitlines()) <= 90


BROKEN = {
    "builds a Linear, not a fastweights.cores.Core": (
        "fading = alone(Fading, ",
        "fading = alone(type('Linear', (nn.Linear,), vars(Fading) | "
        "{'__init__': lambda self, size, config: nn.Linear.__init__(self, size, 2)}), ",
    ),
    "and output_size to a whole number of at least 1, not to 3 and": (
        "self.input_size, self",
        "input_size = 3; self.input_size, self",
    ),
    "initial_state() is a Tensor: return a NamedTuple": ("return Sum(self", "return (self"),
    "has a tensor of torch.float32 [8]: return zeros of torch.float32 [2, ...]": (
        "new_zeros(batch_size, self.output_size)",
        "new_zeros(self.output_size)",
    ),
    "has a tensor of torch.float32 [2, 8]: return zeros": ("new_zeros(b", "new_ones(b"),
    "step() returns a Tensor: return the output and the next state": (
        "return total, Sum(total)",
        "return total",
    ),
    "returns the output torch.float32 [2, 1], which must be torch.float32 [2, 8]": (
        "return total, S",
        "return total[:, :1], S",
    ),
    "returns an invalid state: state must be Sum, not Tensor": ("Sum(total)", "total"),
    "state.sum must be a tensor of shape [2, 8], not of shape [2, 4]": (
        "Sum(total)",
        "Sum(total[:, :4])",
    ),
    "modifies its state argument": (
        "total = self.rate * state.sum + self.write(x)",
        "total = state.sum.mul_(self.rate).add_(self.write(x)).clone()",
    ),
    "unroll() differs from a loop of step()": (
        "unroll = unroll_by_steps",
        "def unroll(self, x, state, is_first):\n"
        "        return unroll_by_steps(self, x, state, torch.zeros_like(is_first))",
    ),
    "a stream's output depends on the other streams of the batch": (
        "self.write(x)",
        "self.write(x - x.mean(0))",
    ),
    "must be a dataclass of plain values: dict is not an instance of a dataclass": (
        "Sizes())",
        "{'width': 8})",
    ),
    "must be a dataclass of plain values: Object of type dtype is not": (
        "rate: float = 0.5",
        "rate: object = torch.float32",
    ),
}


@pytest.mark.parametrize("main", [atari.main, formal_language.main])
@pytest.mark.parametrize("says", BROKEN)
def test_what_breaks_the_interface_is_one_line_before_a_run(main, says, another_process, capsys):
    before, after = BROKEN[says]
    assert before in SOURCE
    another_process(SOURCE.replace(before, after))
    where = LANGUAGE if main is formal_language.main else ("--env", "Catch", "--core-width", "8")
    said = error_of(main, capsys, *where, *NAMED)
    assert says in said and CORE in said
    assert not Path("runs").exists()


def test_a_name_that_nobody_knows_is_refused_at_its_import():
    with pytest.raises(ValueError, match="unknown core 'nope'; known: feedforward"):
        import_core("nope")
    import_core(None)
    import_core("rdn")


def test_the_check_leaves_no_trace(another_process):
    """The same weights and random numbers as without it."""
    import_core(CORE)
    torch.manual_seed(3)
    core = build_core(CORE, 5)
    drawn = torch.rand(2)
    torch.manual_seed(3)
    kind = CORES[CORE]
    alike = kind.build(5, kind.config)
    assert torch.equal(torch.rand(2), drawn) and core.training
    assert torch.equal(core.write.weight, alike.write.weight)


def test_a_core_that_the_program_does_not_have_asks_for_no_other_revision(
    another_process, monkeypatch, capsys
):
    import_core(CORE)
    monkeypatch.setitem(CORES, "own", CORES[CORE])
    train(Path("runs"), "a", "--core", "own", *SHORT)
    monkeypatch.delitem(CORES, "own")
    for main, *words in (
        (evaluate.main, "runs/a"),
        (atari.main, "--resume", "runs/a"),
        (replay.main, "runs/a"),
    ):
        said = error_of(main, capsys, *words)
        assert "unknown core 'own'; known: " in said and "revision" not in said
        assert "a core of your own is my_module:name" in said


def test_a_module_that_has_changed_is_named(another_process, capsys):
    train(Path("runs"), "a", *NAMED, *SHORT)
    another_process(
        SOURCE.replace("self.write = nn", "self.more = nn.Linear(1, 1); self.write = nn")
    )
    said = error_of(evaluate.main, capsys, "runs/a", *NAMED)
    assert f"does not fit the present {CORE}: its weights do not fit its network" in said
    assert "core.more.weight is missing" in said
    assert "restore the module with which it was trained" in said and "revision" not in said


def test_a_file_s_name_is_data(another_process, capsys):
    """A run that a stranger edited names a module; nothing is imported, and no message breaks."""
    train(Path("runs"), "a", *NAMED, *SHORT)
    odd = "users_memory:x; touch y\n:fading"
    change(Path("runs/a"), lambda content: content["flags"].update(core=odd))
    change_meta(Path("runs/a"), lambda meta: meta["args"].update(core=odd))
    another_process()
    for main in (evaluate.main, replay.main):
        assert "that would be imported" in error_of(main, capsys, "runs/a")
    assert not imported().exists()


RAY = ["--engine", "ray", "--num-actors", "1"]
NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


@pytest.mark.parametrize(
    "engine", [[], pytest.param(RAY, marks=[NEEDS_RAY, pytest.mark.faults])], ids=["local", "ray"]
)
def test_in_processes_of_their_own(engine, tmp_path):
    (tmp_path / "users_memory.py").write_text(SOURCE)

    def run(script: str, *words: str) -> str:
        command = [sys.executable, ROOT / "launch" / script, *words, *NAMED]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    size = "--env Catch --num-envs 2 --batch-size 2 --unroll-length 4 --total-steps 40"
    run("atari.py", *size.split(), "--num-threads", "1", "--xpid", "run", *engine)
    assert "full-game return" in run("evaluate.py", "runs/run", *FEW)
