"""Programs in separate processes, forked from one that has done their imports.

Starting Python and importing torch takes longer than most of these programs.
"""

import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO, NamedTuple

ROOT = Path(__file__).parents[1]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    # including modules that a run imports late
    ["fastweights.launch.atari", "torch._dynamo", "tensorboard.summary.writer.record_writer"]
)

# A program that runs a command whose output nobody reads (`| true`); arguments: the command's.
NOBODY_READS = """
import os, sys
read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
from fastweights.host import run_command
sys.exit(run_command(sys.argv[1], sys.argv[2:]))
"""


class Ended(NamedTuple):
    """The result of a program, as from `subprocess.run`."""

    returncode: int
    stdout: str
    stderr: str


class Program:
    """A process that runs `python PROGRAM ARGUMENTS`; a program is a file or source code."""

    def __init__(self, program: Path | str, *arguments: object, environment: dict | None = None):
        self._said = tempfile.TemporaryDirectory()
        self._outputs = [Path(self._said.name) / name for name in ("out", "err")]
        variables = dict(os.environ) | (environment or {})
        call = (program, [*map(str, arguments)], self._outputs, variables, ROOT)
        self._process = FORKS.Process(target=_execute, args=call)
        self._process.start()

    def end(self, seconds: float = 120) -> Ended:
        """Wait for the end and return the result; kill the program and fail if it takes longer."""
        self._process.join(seconds)
        code = self._process.exitcode
        self._process.kill()
        out, err = (path.read_text() for path in self._outputs)
        self._said.cleanup()
        if code is None:
            raise TimeoutError(f"still running after {seconds:.0f} s; output: {out}{err}")
        return Ended(code, out, err)


class ForkedJob:
    """A process of a table's run, with the parts of `subprocess.Popen` that `SideBySide` uses."""

    def __init__(self, command: list, env: dict, stdin: int, stdout: BinaryIO, stderr: int):
        python, program, *arguments = map(str, command)
        assert (python, stdin, stderr) == (sys.executable, subprocess.DEVNULL, subprocess.STDOUT)
        call = (Path(program), arguments, [Path(stdout.name)] * 2, env, Path.cwd())
        self._process = FORKS.Process(target=_execute, args=call)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)


def speak_into(*paths: Path) -> None:
    """Redirect this process's stdout and stderr to two files."""
    for number, path in zip((1, 2), paths, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)


def _execute(
    program: Path | str,
    arguments: list[str],
    outputs: list[Path],
    variables: dict[str, str],
    folder: Path,
) -> None:
    gc.freeze()  # otherwise its exit would copy all imported objects
    speak_into(*outputs)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = [str(program), *arguments]
    if isinstance(program, Path):
        sys.path.insert(0, str(program.parent))
        runpy.run_path(str(program), run_name="__main__")
    else:
        exec(program, {"__name__": "__main__"})
