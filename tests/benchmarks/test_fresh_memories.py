"""The benchmark of what fresh memories remember."""

import json

import pytest

from benchmarks import fresh_memories


def test_what_a_core_can_remember_is_what_is_found():
    """No memory, a window of eight inputs, a leaky vector, and all inputs alike."""
    nothing, window, leaky, all_alike = (
        fresh_memories.medians(core) for core in ("feedforward", "cnn", "lstm", "lt")
    )
    assert nothing == [0] * 6
    assert all(share > 0 for share in window[:3]) and window[3:] == [0] * 3
    assert leaky == sorted(leaky, reverse=True) and leaky[0] > 100 * leaky[-1] > 0
    assert max(all_alike) < 2 * min(all_alike)


def test_keys_of_length_one_remember_more_than_softmax_keys():
    softmax, unit = (fresh_memories.medians(c)[0] for c in ("rdn", "rdn:feature_map=unit"))
    assert unit > 5 * softmax > 0


def test_an_open_forget_gate_remembers_longer():
    usual, open_gate = (
        fresh_memories.medians(core) for core in ("lstm", "lstm:forget_bias=4.0,width=64")
    )
    assert open_gate[-1] > 100 * usual[-1]


def test_the_figures_are_printed_and_stored(tmp_path, capsys):
    file = tmp_path / "fresh.json"
    fresh_memories.main(["lstm", "rdn:layers=1,feature_map=unit", "--json", str(file)])
    found = json.loads(file.read_text())["cores"]
    assert list(found) == ["lstm", "rdn:layers=1,feature_map=unit"]
    assert f"{found['lstm']['1']:.4f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("core", "says"),
    [
        ("lsmt", "did you mean lstm?"),
        ("rdn:unit", "an option has a value"),
        ("rdn:maps=unit", "no option 'maps'"),
        ("rdn:feature_map=unti", "unit"),
    ],
)
def test_bad_input_is_one_line(core, says, capsys):
    with pytest.raises(SystemExit, match="2"):
        fresh_memories.main([core])
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1
