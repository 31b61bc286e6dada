"""Bad options of benchmarks print one error line before anything is measured."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import (
    builds,
    convolutions,
    cores,
    distributed,
    json_file,
    kernels,
    language_models,
    peers,
    scaling,
    sequences,
    shared_machine,
    soak,
    stems,
    training,
)
from fastweights.host.errors import UserError
from fastweights.launch import t_maze

ABOVE = "must be above 0 and finite, not"


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        (builds, "--rounds 0", f"--rounds {ABOVE} 0"),
        (builds, "--rounds many", "--rounds: invalid int value: 'many' (see --help)"),
        (convolutions, "--rounds 0", f"--rounds {ABOVE} 0"),
        (convolutions, "--device cuda", "--device: invalid choice: 'cuda'"),
        (cores, "--seconds 0", f"--seconds {ABOVE} 0"),
        (cores, "--env Qbrt", "did you mean Qbert"),
        (distributed, "--rounds 0", f"--rounds {ABOVE} 0"),
        (distributed, "--updates -3", f"--updates {ABOVE} -3"),
        (distributed, "--env Qbrt", "did you mean Qbert"),
        (distributed, "--parts wires", "unknown part wires"),
        (kernels, "--seconds -1", f"--seconds {ABOVE} -1.0"),
        (kernels, "--threads -1", f"--threads {ABOVE} -1"),
        (kernels, "--compile-steps 0", f"--compile-steps {ABOVE} 0"),
        (kernels, "--gigahertz nan", f"--gigahertz {ABOVE} nan"),
        (kernels, "--json .", ". is a folder: give a file"),
        (kernels, "--json nowhere/kernels.json", "no folder nowhere"),
        pytest.param(
            *(kernels, "--json /proc/kernels.json", "/proc/kernels.json cannot be written: "),
            marks=pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc"),
        ),
        (kernels, f"--json {'k' * 250}.json", ".json cannot be written: File name too long"),
        pytest.param(
            *(kernels, "--device cuda", "torch sees no CUDA device"),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is present"),
        ),
        (language_models, "--columns -1", f"--columns {ABOVE} -1"),
        (language_models, "--span -5", f"--span {ABOVE} -5"),
        (language_models, "--layers -1", f"--layers {ABOVE} -1"),
        (peers, "--python nowhere/python", "install.sh"),
        (peers, f"--python {sys.executable} --json nowhere/peers.json", "no folder nowhere"),
        (peers, f"--python {sys.executable} --rounds 0", f"--rounds {ABOVE} 0"),
        (peers, f"--python {sys.executable} --seconds nan", f"--seconds {ABOVE} nan"),
        (peers, f"--python {sys.executable} --env Qbrt", "did you mean Qbert"),
        (sequences, "--rounds 0", f"--rounds {ABOVE} 0"),
        (sequences, "--seconds inf", f"--seconds {ABOVE} inf"),
        (shared_machine, "--rounds 0", f"--rounds {ABOVE} 0"),
        (shared_machine, "--seconds nan", f"--seconds {ABOVE} nan"),
        (shared_machine, "--env Qbrt", "did you mean Qbert"),
        (shared_machine, "--policies spin", "--policies: invalid choice: 'spin'"),
        (shared_machine, "--competitors -1", "--competitors: invalid choice: -1"),
        (shared_machine, "--out nowhere", "--out nowhere: no such folder"),
        (soak, "--minutes 0", f"--minutes {ABOVE} 0.0"),
        (soak, "--pause -1", f"--pause {ABOVE} -1.0"),
        (soak, "--learners 0", f"--learners {ABOVE} 0"),
        (soak, "--learners 3", "--learners must divide 8"),
        (soak, "--env Qbrt", "did you mean Qbert"),
        (stems, "--env Qbrt", "did you mean Qbert"),
        (stems, "--env TMaze", "TMaze has no image observations"),
        (training, "--rounds 0", f"--rounds {ABOVE} 0"),
        (training, "--seconds -1", f"--seconds {ABOVE} -1.0"),
        (training, "--env Qbrt", "did you mean Qbert"),
        (t_maze, "--seeds x", "--seeds: must be a whole number"),
        *(
            (command, "--nonsense", "unrecognized arguments: --nonsense (see --help)")
            for command in (cores, distributed, kernels, scaling, sequences, soak, stems, training)
        ),
    ],
)
def test_bad_input_is_one_line(command, arguments, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments.split())
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and says in error


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (convolutions, "FASTWEIGHTS_CPUS"),
        (convolutions, "FASTWEIGHTS_PRECISION"),
        (language_models, "FASTWEIGHTS_PRECISION"),
    ],
)
def test_bad_environment_variables_are_one_line(command, name, monkeypatch, capsys):
    # It would change the whole process.
    monkeypatch.setattr(command, "tune_allocator", lambda: None)
    monkeypatch.setenv(name, "odd")
    with pytest.raises(SystemExit, match="2"):
        command.main([])
    error = capsys.readouterr().err
    assert error.startswith(f"error: {name} ") and error.count("\n") == 1 and "'odd'" in error


def test_a_run_that_fails_says_why():
    words = [sys.executable, "-c", "import sys; sys.exit('error: no such thing')"]
    with pytest.raises(UserError, match="a run failed: no such thing"):
        training.said(words)
    with pytest.raises(UserError, match="a run failed: no such thing"):
        training._run(words)
    assert training._run([sys.executable, "-c", ""]) > 0


def test_a_pipe_takes_the_json():
    """`/dev/fd`, like `/dev` for most users, is a folder in which no file can be created."""
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb") as read, os.fdopen(writes, "wb"):
        path = Path(f"/dev/fd/{writes}")
        json_file.check_folder(path)
        json_file.write_json(path, {"rows": [1]})
        assert json.loads(os.read(read.fileno(), 4096)) == {"rows": [1]}
