"""`--kernels` is about one run, also where a process makes several."""

from pathlib import Path

import pytest
import small_runs
from small_texts import TEXT, plain

from fastweights.kernels import requested_backend
from fastweights.launch import list_ops, replay, wikitext103

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
