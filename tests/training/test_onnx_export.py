"""An agent in ONNX Runtime gives the results of the network's unroll, with resets."""

import json

import numpy as np
import pytest
import torch
from small_runs import train

from fastweights.agents.network import Network, NetworkConfig
from fastweights.cores import CORES, CoreKind, core_config
from fastweights.cores.lstm import LSTM, LSTMConfig
from fastweights.launch import evaluate, export
from fastweights.training.onnx_export import check_packages, named_tensors, write_onnx

docs = pytest.mark.docs
TIME, BATCH = 6, 3


def small_network(core: str, **more) -> Network:
    sizes = {"width": 16, "feedforward": 16, "window": 4}
    known = CORES[core].options()
    options = tuple((name, size) for name, size in sizes.items() if name in known)
    config = {"frame_shape": (5,), "num_actions": 3, "core_options": options} | more
    config["value_scale"] = 4.0
    return Network(NetworkConfig(core=core, **config))


def unrolled_in_onnx(path, rows, state: dict[str, np.ndarray]):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    logits, values = [], []
    for t in range(TIME):
        row = {name: rows[name][t].numpy() for name in rows}
        given = row | {f"state_{name}": leaf for name, leaf in state.items()}
        took = {one.name for one in session.get_inputs()}
        assert took == set(given)
        out = dict(zip(names, session.run(None, given), strict=True))
        state = {name: out[f"next_{name}"] for name in state}
        logits.append(out["policy_logits"])
        values.append(out["value"])
    return np.stack(logits), np.stack(values), state


def rows_of(network: Network, *, pictures: bool = False) -> dict[str, torch.Tensor]:
    shape = (TIME, BATCH, *network.config.frame_shape)
    is_first = torch.zeros(TIME, BATCH, dtype=torch.bool)
    is_first[0, 1] = is_first[3, 0] = is_first[TIME - 1, 2] = True
    return {
        "frame": torch.randint(256, shape, dtype=torch.uint8) if pictures else torch.randn(shape),
        "reward": 3 * torch.randn(TIME, BATCH),
        "is_first": is_first,
        "last_action": torch.randint(network.config.num_actions, (TIME, BATCH)),
    }


def assert_same_unroll(network: Network, path, rows) -> None:
    fresh = network.initial_state(BATCH)
    zeros = {name: leaf.numpy() for name, leaf in named_tensors(fresh)}
    logits, values, state = unrolled_in_onnx(path, rows, zeros)
    with torch.no_grad():
        output, after = network(*rows.values(), fresh)
    np.testing.assert_allclose(logits, output.policy_logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values, output.value, rtol=1e-4, atol=1e-5)
    for name, leaf in named_tensors(after):
        np.testing.assert_allclose(state[name], leaf, rtol=1e-4, atol=1e-5, err_msg=name)


@docs
@pytest.mark.parametrize("core", CORES)
def test_steps_in_onnx_runtime_are_the_unroll(core, tmp_path):
    network = small_network(core)
    write_onnx(network, tmp_path / "agent.onnx", {})
    assert_same_unroll(network, tmp_path / "agent.onnx", rows_of(network))


@docs
@pytest.mark.parametrize("stem", ["shallow", "shallow_norm", "shallow_centred", "resnet"])
def test_pictures_and_the_last_action(stem, tmp_path):
    shape = {"frame_shape": (4, 36, 36), "stem": stem, "feed_last_action": True}
    network = small_network("rdn", **shape)
    write_onnx(network, tmp_path / "agent.onnx", {})
    assert_same_unroll(network, tmp_path / "agent.onnx", rows_of(network, pictures=True))


@docs
def test_bfloat16_convolutions_are_exported_in_float32(tmp_path):
    network = small_network("lstm", frame_shape=(1, 24, 24), stem="shallow", precision="bfloat16")
    write_onnx(network, tmp_path / "agent.onnx", {})
    assert network.stem.in_bfloat16
    network.stem.in_bfloat16 = False
    assert_same_unroll(network, tmp_path / "agent.onnx", rows_of(network, pictures=True))


@docs
def test_the_command_writes_a_file_that_says_what_it_is(tmp_path, capsys):
    import onnx

    assert train(tmp_path, "run", "--core", "rdn", "--core-width", 16, "--total-steps", 40) == 0
    out = tmp_path / "there" / "agent.onnx"
    assert export.main([str(tmp_path / "run"), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "checked with ONNX Runtime: largest difference" in said and "state_0_fast_w" in said
    (entry,) = (e for e in onnx.load(out).metadata_props if e.key == "fastweights")
    facts = json.loads(entry.value)
    assert (facts["core"], facts["agent_steps"], facts["num_actions"]) == ("rdn", 40, 3)


class Untraceable(LSTM):
    """A core that reads a number on the host, which no graph can contain."""

    def step(self, x, state):
        return super().step(x if x.sum().item() > 0 else -x, state)


@docs
def test_a_core_without_an_onnx_form_is_one_line_and_no_file(tmp_path, monkeypatch):
    kind = CoreKind(Untraceable, LSTMConfig(width=8), *("none",) * 3, has_fast_weights=False)
    monkeypatch.setitem(CORES, "untraceable", kind)
    network = Network(NetworkConfig(frame_shape=(5,), num_actions=3, core="untraceable"))
    with pytest.raises(
        ValueError, match="the core 'untraceable' cannot be exported to ONNX"
    ) as bad:
        write_onnx(network, tmp_path / "agent.onnx", {})
    assert "\n" not in str(bad.value) and "--format safetensors" in str(bad.value)
    assert not list(tmp_path.iterdir())


def test_missing_packages_are_named():
    with pytest.raises(ValueError, match=r"needs onnx, onnxscript: pip install -e '\.\[onnx\]'"):
        check_packages(lambda name: name == "onnxruntime")
    check_packages(lambda name: True)


@pytest.mark.parametrize("core", ["feedforward", "lstm", "transformer", "rdn", "mlstm"])
def test_a_step_of_the_network_is_its_unroll(core):
    network = small_network(core)
    rows, state = rows_of(network), network.initial_state(BATCH)
    with torch.no_grad():
        output, after = network(*rows.values(), state)
        for t in range(TIME):
            step, state = network.step(*(row[t] for row in rows.values()), state)
            torch.testing.assert_close(step.policy_logits, output.policy_logits[t])
            torch.testing.assert_close(step.value, output.value[t])
    ours, theirs = dict(named_tensors(state)), dict(named_tensors(after))
    torch.testing.assert_close(ours, theirs)


def test_paths_of_a_state_are_unique():
    for core in CORES:
        names = [name for name, _ in named_tensors(small_network(core).initial_state(2))]
        assert len(set(names)) == len(names)
    assert core_config("lstm").width  # the names below belong to the LSTM
    network = small_network("lstm")
    assert [name for name, _ in named_tensors(network.initial_state(2))] == ["hidden", "cell"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--format", "safetensors", "--out", "FILE"), "is a file: give a folder"),
        (
            ("--format", "safetensors", "--out", "FOLDER"),
            "contains other files: give a new folder",
        ),
        (("--out", "FILE"), "must end in .onnx (without --format safetensors)"),
        (("--out", "agent.pt"), "--out agent.pt must end in .onnx"),
        (("--format", "pickle"), "is not one of onnx, safetensors"),
    ],
)
def test_bad_input_is_one_line(arguments, says, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    for path in (tmp_path / "file", tmp_path / "mine" / "README.md"):
        path.write_text("mine")
    places = {"FILE": str(tmp_path / "file"), "FOLDER": str(tmp_path / "mine")}
    arguments = [places.get(one, one) for one in arguments]
    with pytest.raises(SystemExit, match="2"):
        export.main([str(tmp_path), *arguments])
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and says in said
    assert (tmp_path / "mine" / "README.md").read_text() == "mine"


def test_both_commands_write_the_same_safetensors(tmp_path):
    assert train(tmp_path, "run", "--core", "lstm", "--core-width", 8, "--total-steps", 40) == 0
    one, two = tmp_path / "one", tmp_path / "two"
    run = str(tmp_path / "run")
    for _ in range(2):  # an earlier export is replaced
        assert export.main([run, "--format", "safetensors", "--out", str(one)]) == 0
    assert evaluate.main([run, "--export", str(two)]) == 0
    for name in ("model.safetensors", "config.json", "README.md"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
