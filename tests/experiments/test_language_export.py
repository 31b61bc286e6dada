"""Files of language models: exports of one model, and what a kill leaves to a resumed run."""

import json
import re

import pytest
from forks import Program
from small_texts import TEXT, plain

from fastweights.experiments.language_model.run import SAMPLES
from fastweights.experiments.language_model.saved import open_model
from fastweights.experiments.learning import RESULT_FILE
from fastweights.launch import wikitext103
from fastweights.records import CheckpointError

TINY = (
    *("--preset", "small", "--num-threads", "1", "--core-width", "16", "--columns", "4"),
    *("--span", "8", "--updates", "2", "--warm-up", "1", "--evaluate-every", "1", "--stride", "3"),
)


def test_an_export_of_other_weights_has_no_results(tmp_path):
    text = plain(tmp_path / "text", "wiki.{}.tokens", {split: 6 * TEXT[split] for split in TEXT})
    where = ("--data", str(text), "--cache", str(tmp_path / "cache"), "--savedir", str(tmp_path))
    assert wikitext103.main([*TINY, *where, "--xpid", "a"]) == 0
    result = json.loads((tmp_path / "a" / RESULT_FILE).read_text())
    first = tmp_path / "a" / "checkpoints" / "step_000000000000.pt"
    shown = f"{result['test']['bits_per_byte']:.3f}"
    for path, has_results in ((first, False), (tmp_path / "a", True)):
        out = tmp_path / f"export-{path.name}"
        assert wikitext103.main(["export", str(path), str(out)]) == 0
        card = (out / "README.md").read_text()
        assert (shown in card, "None: these weights" in card) == (has_results, not has_results)


def test_new_files_of_an_export_do_not_meet_the_weights_before(tmp_path, capsys):
    """The vocabulary cannot be written: the folder then holds no model, not a mixed one."""
    text = plain(tmp_path / "text", "wiki.{}.tokens", {split: 6 * TEXT[split] for split in TEXT})
    where = ("--data", str(text), "--cache", str(tmp_path / "cache"), "--savedir", str(tmp_path))
    assert wikitext103.main([*TINY, *where, "--xpid", "a"]) == 0
    command = ["export", str(tmp_path / "a"), str(tmp_path / "out")]
    assert wikitext103.main(command) == 0
    (tmp_path / "out" / "vocabulary.json").unlink()
    (tmp_path / "out" / "vocabulary.json").mkdir()
    with pytest.raises(SystemExit):
        wikitext103.main(command)
    assert "vocabulary.json" in capsys.readouterr().err
    assert not (tmp_path / "out" / "model.safetensors").exists()
    (tmp_path / "out" / "vocabulary.json").rmdir()
    assert wikitext103.main(command) == 0
    assert open_model(tmp_path / "out").step == open_model(tmp_path / "a").step


def test_an_export_cannot_ask_for_a_model_larger_than_its_weights(tmp_path):
    text = plain(tmp_path / "text", "wiki.{}.tokens", {split: 6 * TEXT[split] for split in TEXT})
    where = ("--data", str(text), "--cache", str(tmp_path / "cache"), "--savedir", str(tmp_path))
    assert wikitext103.main([*TINY, *where, "--xpid", "a"]) == 0
    out = tmp_path / "out"
    assert wikitext103.main(["export", str(tmp_path / "a"), str(out)]) == 0
    config = json.loads((out / "config.json").read_text())
    config["flags"]["core_width"] = 2**15  # matrices of four gigabytes
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="do not fit its network"):
        open_model(out)


AFTER_A_SAMPLE = """
import os, sys
from fastweights.experiments.language_model import run
from fastweights.launch import wikitext103
sample = run.sample
run.sample = lambda *given: os._exit(len(sample(*given)) and 9)
wikitext103.main(sys.argv[1:])
"""


def test_a_run_that_was_killed_after_a_sample_has_it_once(tmp_path):
    text = plain(tmp_path / "text", "wiki.{}.tokens", {split: 6 * TEXT[split] for split in TEXT})
    where = ("--data", text, "--cache", tmp_path / "cache", "--savedir", tmp_path, "--xpid", "a")
    words = (*TINY, *where, "--sample-length", 9)
    assert Program(AFTER_A_SAMPLE, *words).end().returncode == 9
    once = (tmp_path / "a" / SAMPLES).read_text()
    assert once.startswith("--- update 1\n")
    assert wikitext103.main(["--resume", str(tmp_path / "a")]) == 0
    found = (tmp_path / "a" / SAMPLES).read_text()
    assert re.findall("--- update (.*)", found) == ["1", "2"] and found.startswith(once)


BEFORE_THE_BEST = """
import os, sys
from fastweights.launch import wikitext103
from fastweights.records import checkpoint_folder
link = checkpoint_folder.link_or_copy
def killed(path, target):
    if target.name == "best.pt" and path.name == "step_000000000004.pt":
        os._exit(9)
    link(path, target)
checkpoint_folder.link_or_copy = killed
wikitext103.main(sys.argv[1:])
"""


@pytest.mark.parametrize("evaluate_every", [2, 100])
def test_the_best_weights_survive_a_kill_before_they_were_linked(evaluate_every, tmp_path):
    text = plain(tmp_path / "text", "wiki.{}.tokens", {split: 6 * TEXT[split] for split in TEXT})
    where = ("--data", text, "--cache", tmp_path / "cache", "--savedir", tmp_path)
    words = (*TINY, *where, "--updates", 4, "--evaluate-every", evaluate_every)
    assert wikitext103.main([*map(str, (*words, "--xpid", "whole"))]) == 0
    assert Program(BEFORE_THE_BEST, *words, "--xpid", "killed").end().returncode == 9
    assert wikitext103.main(["--resume", str(tmp_path / "killed")]) == 0
    whole, resumed = (
        json.loads((tmp_path / run / RESULT_FILE).read_text()) for run in ("whole", "killed")
    )
    assert whole["best_update"] == 4
    for name in ("best_update", "valid", "test"):
        assert resumed[name] == whole[name]
