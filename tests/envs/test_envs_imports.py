"""Importing `envs` loads neither torch nor, until an Atari game is made, ale-py."""

import subprocess
import sys


def test_importing_is_light():
    code = """
import sys, envs
assert "torch" not in sys.modules, "torch"
envs.make("Catch", 2).reset()
assert "ale_py" not in sys.modules, "ale_py"
envs.make("Qbert", 1)
assert "torch" not in sys.modules, "torch"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
