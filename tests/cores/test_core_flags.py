"""The cores' options as flags: from the configurations alone, a new core's included."""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from fastweights.cores import CORES
from fastweights.cores.options import CoreSizes, field_docs

ROOT = Path(__file__).parents[2]
FLAGS = {field.name.removeprefix("core_") for field in fields(CoreSizes)}

# A core in a file of its own, with an option that no other has.
FADING = '''
from dataclasses import dataclass
from fastweights.cores import CORES, CoreKind
from fastweights.cores.lstm import LSTM, LSTMConfig


@dataclass(frozen=True, kw_only=True)
class FadingConfig(LSTMConfig):
    rate: float = 0.5
    """Share that fades in a step."""


class Fading(LSTM):
    """Says at which rate it was built."""

    def __init__(self, input_size, config):
        super().__init__(input_size, LSTMConfig(width=config.width))
        print("built with", config.rate)


facts = ("Fading LSTM", "c_t = r c_(t-1)", "this test")
CORES["fading"] = CoreKind(Fading, FadingConfig(), *facts, has_fast_weights=False)
'''
TRAIN = "import sys, fading; from fastweights.launch import atari; sys.exit(atari.main())"
TINY = "--env Catch --num-envs 2 --batch-size 2 --unroll-length 4 --total-steps 8 --num-threads 1"


@pytest.mark.parametrize("name", CORES)
def test_every_option_has_its_help_and_is_a_flag(name):
    config = type(CORES[name].config)
    docs = field_docs(config)
    for option in CORES[name].options():
        assert docs[option][-1] == "." and docs[option][0].isupper()
        assert option in FLAGS or option in ("embed", "dropout", "output_scale")


def test_a_new_core_brings_its_flags(tmp_path):
    (tmp_path / "fading.py").write_text(FADING)
    variables = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))}

    def run(*words: str) -> subprocess.CompletedProcess:
        command = (sys.executable, "-c", TRAIN, "--core", "fading", *words)
        options = {"cwd": tmp_path, "env": variables, "timeout": 120}
        return subprocess.run(command, capture_output=True, text=True, **options)

    asked = run("--help")
    assert "--core-rate" in asked.stdout and "Share that fades in a step." in asked.stdout
    trained = run("--core-rate", "0.25", *TINY.split(), "--disable-checkpoint")
    assert trained.returncode == 0, trained.stderr
    assert "built with 0.25" in trained.stdout
    wrong = run("--core-rate", "fast", *TINY.split())
    assert wrong.returncode == 2 and "--core-rate" in wrong.stderr.splitlines()[-1]
