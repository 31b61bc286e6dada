"""Command names for hints, and starting commands in this process or as new processes.

Commands run as `python launch/atari.py` from a checkout, and as `fastweights atari` or
`python -m fastweights atari` if the package is installed. Hints name a command in the way that the
user started this process. A user's own program gets hints that work in the current folder.
"""

import importlib.metadata
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import fastweights
from fastweights.host.errors import one_line_errors
from fastweights.host.progress import discard
from fastweights.host.waiting import sleep_while_waiting

# These lie beside the package in a checkout; an installed package has only its own folder.
_SCRIPTS = Path(fastweights.__file__).resolve().parents[1] / "launch"
_left_behind: list[threading.Thread] = []


def typed_command(command: str, *arguments: str | Path) -> str:
    """Return what to type to run `command` (`evaluate`, `t_maze`, ...) with `arguments`."""
    return " ".join((_typed(command), *(shlex.quote(str(word)) for word in arguments)))


def _typed(command: str) -> str:
    started = Path(sys.argv[0])
    if started.suffix == ".py" and started.parent.resolve() == _SCRIPTS:
        return f"python {shlex.quote(str(started.with_name(f'{command}.py')))}"
    if started.name == "__main__.py" and started.parent.name == "fastweights":
        return f"python -m fastweights {command}"
    if started.stem == "fastweights":
        return f"fastweights {command}"
    return f"python launch/{command}.py" if _is_in_checkout() else f"fastweights {command}"


def _is_in_checkout() -> bool:
    """Return whether the current folder is this checkout."""
    here = Path("launch")
    return here.is_dir() and here.resolve() == _SCRIPTS


def install_command(extra: str) -> str:
    """Return what to type to install the packages of an optional extra, such as `ray`.

    The package is on no index: where it is installed, the packages of the extra are named instead.
    """
    if (_SCRIPTS.parent / "pyproject.toml").is_file():
        return f"pip install -e '.[{extra}]'"
    needed = importlib.metadata.requires("fastweights") or []
    packages = [one.partition(";")[0].strip() for one in needed if f'extra == "{extra}"' in one]
    return shlex.join(["pip", "install", *packages])


@one_line_errors  # Ctrl-C during the imports, too
def run_command(command: str, arguments: Sequence[str] | None = None) -> int:
    """Run `command` in this process, by default with its arguments; return the exit code.

    Call it before torch is imported. If nobody reads what the command prints (`| head`), it ends
    quietly, with a shell's code for that. If a thread was left behind, the process ends here.
    """
    sleep_while_waiting()
    with suppress(AttributeError, OSError):  # no such stream
        sys.stdout.reconfigure(errors="replace")  # its encoding may lack a character
    # Python searches a script's folder first: `report.py` there must not hide a user's `report`.
    sys.path[:] = [one for one in sys.path if not one or Path(one).resolve() != _SCRIPTS]
    code = exit_code(import_module(f"fastweights.launch.{command}").main, arguments)
    if any(thread.is_alive() for thread in _left_behind):
        _flush(sys.stderr)
        os._exit(code)
    return code


def exit_code(function: Callable[..., int | None], *arguments: Any) -> int:
    """Call a function that prints and return its exit code: a shell's own if nobody reads it."""
    try:
        try:
            code = function(*arguments)
        except SystemExit as end:
            code = end.code
        _flush(sys.stdout)
    except BrokenPipeError:
        discard(sys.stdout)
        return 128 + signal.SIGPIPE
    return code or 0


def _flush(stream: TextIO | None) -> None:
    if stream is not None:  # closed before the start, as for daemons
        stream.flush()


def leave_behind(thread: threading.Thread) -> None:
    """Let `run_command` end the process without Python's finalisation while the thread is alive.

    A thread that returns to Python from C++ during finalisation aborts the process.
    """
    _left_behind.append(thread)


def command_argv(command: str) -> list[str]:
    """Return the arguments that start `command` as a process, with the same code as here."""
    script = _SCRIPTS / f"{command}.py"
    if script.is_file():
        return [sys.executable, str(script)]
    return [sys.executable, "-P", "-m", "fastweights", command]
