"""The cores' options as flags, made from their configurations; also for a new core."""

import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from fastweights.cores import CORES
from fastweights.cores.options import CoreSizes, field_docs

ROOT = Path(__file__).parents[2]
ROOMS = {path.name for path in (ROOT / "fastweights").iterdir() if path.is_symlink()}
FLAGS = {field.name.removeprefix("core_") for field in fields(CoreSizes)}

# The file of a core with an option that no other core has, and its line in the registry.
FADING = '''
from dataclasses import dataclass
from fastweights.cores.kind import alone
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


KIND = alone(Fading, "Fading LSTM", FadingConfig())
'''
LINE = "from fastweights.cores.fading import KIND as fading\n"
TINY = (
    "--env Catch --num-envs 2 --batch-size 2 --unroll-length 4 --total-steps 8 --num-threads 1 "
    "--disable-checkpoint"
)


@pytest.mark.parametrize("name", CORES)
def test_every_option_has_its_help_and_is_a_flag(name):
    config = type(CORES[name].config)
    docs = field_docs(config)
    for option in CORES[name].options():
        assert docs[option][-1] == "." and docs[option][0].isupper()
        assert option in FLAGS or option in ("embed", "dropout", "output_scale")


def test_a_new_core_with_an_option_is_a_file_and_a_line(tmp_path):
    package = tmp_path / "fastweights"
    shutil.copytree(ROOT / "fastweights", package, ignore=lambda _, names: ROOMS & set(names))
    for room in ROOMS - {"cores"}:
        (package / room).symlink_to(ROOT / room)
    shutil.copytree(ROOT / "cores", package / "cores")
    (package / "cores" / "fading.py").write_text(FADING)
    with (package / "cores" / "registry.py").open("a") as registry:
        registry.write(LINE)

    def run(*words: str) -> subprocess.CompletedProcess:
        command = (sys.executable, "-m", "fastweights", "atari", *words)
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    everything = run("--help-all").stdout
    assert "--core-rate" in everything
    assert "Share that fades in a step. For fading." in " ".join(everything.split())
    trained = run("--core", "fading", "--core-rate", "0.25", *TINY.split())
    assert trained.returncode == 0, trained.stderr
    assert "built with 0.25" in trained.stdout
