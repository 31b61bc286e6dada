"""Modules loaded before a command does anything; PyTorch's compiler alone takes a second."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import torch
from fastweights.agents.network import Network, NetworkConfig
from fastweights.launch import atari

assert atari.main(["--list-cores"]) == 0
for core in ("rdn", "srwm", "lstm"):  # as before a run, to know whether it fits into memory
    with torch.device("meta"):
        Network(NetworkConfig(frame_shape=(4, 84, 84), num_actions=18, core=core))
assert "torch._dynamo" not in sys.modules
"""


def test_listing_cores_and_sizing_a_network_load_no_compiler():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "rdn_large" in done.stdout
