"""A run's progress: a bar on a terminal, or a plain line every ten seconds elsewhere.

rich draws the bar, with its `Live` and `ProgressBar`. Its `Progress` is not used: without a
terminal it writes nothing until the end, and its rate ignores updates without a finished item, so
the rate would be unknown until the second of ten test games ends.

A display never ends a run. If a terminal fails (closed, very narrow, unable to show a character),
plain lines replace the bar; if these fail, too, the display is silent.
"""

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Self, TextIO

import rich.console
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

# Log columns to show, in this order, if a row has them -> short name.
SHOWN = {
    "recent_full_game_return": "return",
    "games": "games",
    "longest_game": "agent steps so far",
    "recent_life_return": "per life",
    "epoch": "epoch",
    "total_loss": "loss",
    "pg_loss": "policy",
    "baseline_loss": "baseline",
    "entropy": "entropy",
    "approx_kl": "KL",
    "policy_lag": "lag",
    "perplexity": "perplexity",
    "positions_per_second": "tokens/s",
    "valid_perplexity": "held-out perplexity",
    "valid_sequence_accuracy": "held-out sequence accuracy",
    "valid_answer_accuracy": "answer accuracy",
}
_PLAIN_INTERVAL = 10.0  # seconds between plain lines
_REDRAW_INTERVAL = 0.1  # seconds


def discard(stream: IO[str]) -> None:
    """Send a stream whose pipe is closed to the null device, so that its last flush succeeds."""
    with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("w") as null:
        os.dup2(null.fileno(), stream.fileno())


class Console(rich.console.Console):
    """A console that is quiet once its pipe is closed; rich's console would end the process."""

    def say(self, text: str) -> None:
        """Print plain text as it is: not wrapped, and brackets are no markup."""
        self.out(text, highlight=False)

    def on_broken_pipe(self) -> None:
        """Print nothing from now on."""
        self.quiet = True
        discard(self.file)


class ProgressDisplay:
    """Progress from `step` to `total_steps`, both in `unit`s; a context manager.

    Call `update` after every tick. `say` prints a line above the bar, as `print` does within the
    context. `clock` is in seconds and monotonic. The rate covers the last `window` seconds.
    """

    def __init__(
        self,
        total_steps: int,
        step: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "agent steps",
        window: float = 30.0,
    ) -> None:
        self._window = window
        self._unit = unit
        self._total_steps = total_steps
        self._step = step
        self._stream = stream
        self._clock = clock
        self._history = deque([(clock(), step)])
        self._row: Mapping[str, Any] = {}
        self._live: Live | None = None
        self._last_shown = -float("inf")
        self._shown_step: int | None = None

    def __enter__(self) -> Self:
        self._stream = self._stream or sys.stdout
        try:
            console = Console(file=self._stream)
            if console.is_terminal and not console.is_dumb_terminal:
                # Refreshed by `update`, to avoid another thread beside the learner.
                self._live = Live(console=console, auto_refresh=False, transient=False)
                self._live.start()
        except Exception:
            self._live = None
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown_step != self._step or self._live is not None:
            self._show()
        self._stop_live()

    @property
    def steps_per_second(self) -> float | None:
        """The rate in steps per second over the window; None before the second update."""
        (begin, first), (end, last) = self._history[0], self._history[-1]
        return (last - first) / (end - begin) if end > begin else None

    def update(self, step: int, row: Mapping[str, Any]) -> None:
        """Show `step` (so far) and the columns of `row` in `SHOWN`."""
        now = self._clock()
        if len(self._history) > 1 and step == self._step:  # at most one entry per step
            self._history.pop()
        self._step, self._row = step, row
        self._history.append((now, step))
        while len(self._history) > 2 and now - self._history[1][0] > self._window:
            self._history.popleft()
        interval = _PLAIN_INTERVAL if self._live is None else _REDRAW_INTERVAL
        if now - self._last_shown >= interval:
            self._last_shown = now
            self._show()

    def say(self, line: str) -> None:
        """Print `line` above the bar."""
        try:
            if self._live is not None:
                self._live.console.print(Text(line))
                return
        except Exception:
            self._stop_live()
        self._print(line)

    def _show(self) -> None:
        self._shown_step = self._step
        try:
            if self._live is not None:
                self._live.update(self._bar(), refresh=True)
                return
        except Exception:
            self._stop_live()
        self._print(" · ".join([*self._progress(), *self._facts()]))

    def _print(self, line: str) -> None:
        try:
            stream = self._stream or sys.stdout
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
            stream.flush()
        except (OSError, ValueError, LookupError):
            return  # a closed pipe or file must never end the run

    def _stop_live(self) -> None:
        live, self._live = self._live, None
        try:
            if live is not None:
                live.stop()
        except Exception:
            return

    def _bar(self) -> Group:
        lines = [" · ".join(part) for part in (self._progress(), self._facts()) if part]
        bar = ProgressBar(total=max(1, self._total_steps), completed=self._step)
        # The bar comes last: it does not end its line, so text after it would be truncated.
        return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines), bar)

    def _progress(self) -> list[str]:
        share = min(100, 100 * self._step / self._total_steps) if self._total_steps else 100
        done = f"{self._step:,} of {self._total_steps:,} {self._unit}"
        if self._step > self._total_steps:  # the last update uses a whole batch
            done = f"{self._step:,} {self._unit} ({self._total_steps:,} requested)"
        parts = [f"{share:.0f} %", done]
        rate = self.steps_per_second
        if rate:
            left = max(0, self._total_steps - self._step) / rate
            speed = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
            parts += [f"{speed} {self._unit.split()[-1]}/s", f"{_duration(left)} left"]
        return parts

    def _facts(self) -> list[str]:
        row = dict(self._row)
        if row.get("lives") == row.get("games"):  # games have one life: both returns are equal
            row.pop("recent_life_return", None)
        return [
            f"{short} {_short_number(row[name])}"
            for name, short in SHOWN.items()
            if row.get(name) is not None
        ]


def _short_number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{float(value):,.4g}"


def _duration(seconds: float) -> str:
    """Return `2 d 03 h`, `1:02:03` or `02:03`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24:02d} h"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute:02d}:{second:02d}"
