"""The model card of an exported language model is about its own weights."""

import json

from small_texts import TEXT, plain

from fastweights.experiments.learning import RESULT_FILE
from fastweights.launch import wikitext103

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
        assert (shown in card, "None of these weights." in card) == (has_results, not has_results)
