"""`--kernels` is about one run, also where a process makes several."""

from pathlib import Path

import pytest
import small_runs
from small_texts import TEXT, plain

from fastweights.kernels import requested_backend
from fastweights.kernels.machinery import dispatch
from fastweights.launch import evaluate, list_ops, replay, watch, wikitext103

SAMPLE = str(Path(__file__).parents[1] / "samples" / "agent")

LISTS = (
    *("--preset", "small", "--train-size", "16", "--valid-size", "8", "--test-size", "8"),
    *("--batch-size", "8", "--epochs", "1", "--num-threads", "1", "--core-width", "16"),
    *("--depth", "1"),
)
TEXTS = (
    *("--preset", "small", "--num-threads", "1", "--core-width", "16", "--columns", "4"),
    *("--span", "8", "--stride", "3", "--updates", "2", "--warm-up", "1", "--sample-length", "9"),
)


def agent(folder: Path, *options: str) -> int:
    return small_runs.train(folder, "run", "--total-steps", 40, *options)


def replayed(folder: Path, *options: str) -> int:
    agent(folder, *options)
    return replay.main([str(folder / "run")])


def sequences(folder: Path, *options: str) -> int:
    return list_ops.main([*LISTS, "--savedir", str(folder), *options])


def language(folder: Path, *options: str) -> int:
    lines = {split: content * 6 for split, content in TEXT.items()}
    data = plain(folder / "text", "wiki.{}.tokens", lines)
    return wikitext103.main([*TEXTS, "--data", str(data), "--savedir", str(folder), *options])


def evaluated(*_: object) -> int:
    return evaluate.main([SAMPLE, "--episodes", "1", "--num-threads", "1"])


def filmed(folder: Path, *_: object) -> int:
    return watch.main([SAMPLE, "--out", str(folder / "film.gif"), "--num-threads", "1"])


def generated(folder: Path, *options: str) -> int:
    with pytest.MonkeyPatch.context() as patch:  # the training before it needs no such backend
        patch.delenv("FASTWEIGHTS_BACKEND")
        dispatch._environment.cache_clear()
        language(folder, "--xpid", "run", *options)
    dispatch._environment.cache_clear()
    return wikitext103.main(["generate", str(folder / "run"), "--num-threads", "1"])


@pytest.mark.parametrize("run", [agent, replayed, sequences, language])
def test_the_next_run_of_a_process_chooses_for_itself(run, tmp_path):
    before = requested_backend()
    assert run(tmp_path, "--core", "lstm", "--kernels", "reference") == 0
    assert requested_backend() == before


@pytest.mark.parametrize(
    ("core", "kernels", "says"),
    [
        ("lstm", "chunked", "it has: auto, reference, cpu"),
        ("rdn", "chunked", "it has: auto, reference, cpu"),
        ("delta_net", "cuda", "cannot run on the cuda backend"),
    ],
)
@pytest.mark.parametrize("run", [agent, sequences, language])
def test_a_backend_that_the_core_cannot_run_on_is_one_line(
    run, core, kernels, says, tmp_path, capsys
):
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path, "--core", core, "--kernels", kernels)
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and says in line
    assert not list(tmp_path.glob("*/meta.json"))


@pytest.mark.parametrize(
    ("backend", "says"),
    [("foo", "unknown kernel backend 'foo'"), ("chunked", "it has: auto, reference, cpu")],
)
@pytest.mark.parametrize("run", [agent, evaluated, filmed, sequences, language, generated])
def test_a_backend_of_the_environment_is_checked_too(
    run, backend, says, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("FASTWEIGHTS_BACKEND", backend)
    dispatch._environment.cache_clear()
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path, "--core", "rdn")
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and says in line
    monkeypatch.undo()
    dispatch._environment.cache_clear()
