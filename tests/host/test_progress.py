"""Progress on a terminal, in a log file, and on a broken stream."""

import io
import os
import pty
import re
import sys
import threading

import pytest

from fastweights.evaluation.playing import progress_bar
from fastweights.host.progress import ProgressDisplay

ROW = {"recent_full_game_return": 163.9, "total_loss": 0.125, "policy_lag": 0, "games": 3}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal:
    """A pseudo-terminal whose output is collected."""

    def __init__(self) -> None:
        self._leader, follower = pty.openpty()
        self.stream = os.fdopen(follower, "w", encoding="utf-8")
        self._output = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._leader, 4096)
            except OSError:  # how Linux reports the end of a terminal's output
                return
            if not part:
                return
            self._output += part

    def close(self) -> str:
        self.stream.close()
        self._reader.join()
        os.close(self._leader)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._output.decode())


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_without_a_terminal_there_is_a_line_every_ten_seconds_and_the_last():
    stream, clock = io.StringIO(), Clock()
    with ProgressDisplay(10_000, stream=stream, clock=clock) as display:
        for second in range(1, 26):
            clock.now = float(second)
            display.update(100 * second, ROW)
        display.say("saved")
    lines = stream.getvalue().splitlines()
    assert [line.split(" · ")[1] for line in lines if "·" in line] == [
        f"{step:,} of 10,000 agent steps" for step in (100, 1100, 2100, 2500)
    ]
    assert lines[3] == "saved"
    assert lines[0] == (
        "1 % · 100 of 10,000 agent steps · 100 steps/s · 01:39 left"
        " · return 163.9 · games 3 · loss 0.125 · lag 0"
    )


def test_the_rate_is_the_recent_one():
    clock = Clock()
    with ProgressDisplay(10**6, step=500, stream=io.StringIO(), clock=clock) as display:
        assert display.steps_per_second is None
        for second in range(1, 200):
            clock.now = float(second)
            display.update(500 + 10 * min(second, 100) + 1000 * max(0, second - 100), {})
        assert display.steps_per_second == pytest.approx(1000)


def test_the_time_left_for_test_games_is_at_their_pace_so_far():
    """All games run at once, so for a long time none ends, and then many do."""
    stream, clock = io.StringIO(), Clock()
    with progress_bar(10, "agent (argmax)", stream, clock) as report:
        for second in range(1, 121):
            clock.now = float(second)
            report(sum(second >= end for end in (51, 101, 101, 101)), 100 * second)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "agent (argmax): 10 games"
    shown = dict(zip(range(1, 121, 10), lines[1:], strict=False))
    assert shown[41] == "0 % · 0 of 10 games · agent steps so far 4,100"
    assert shown[51].startswith("10 % · 1 of 10 games · 0.0196 games/s · 07:39 left · ")
    assert "1 of 10 games · 0.011 games/s · 13:39 left" in shown[91]  # forty seconds later
    assert "4 of 10 games · 0.0396 games/s · 02:32 left" in shown[101]


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({}, "to limit its length, use --max-frames"),
        ({"limit": 200_000}, "it will be cut off after 200,000 frames (--max-frames)"),
        (
            {"limit": 108_000, "option": "--evaluate-max-frames"},
            "it will be cut off after 108,000 frames (--evaluate-max-frames)",
        ),
    ],
)
def test_long_games_are_noted_once_with_what_the_command_can_do(given, advice):
    stream = io.StringIO()
    with progress_bar(10, "games", stream, Clock(), **given) as report:
        for steps in range(26_999, 27_005):
            report(4, steps)
    notes = [line for line in stream.getvalue().splitlines() if line.startswith("note: ")]
    assert notes == [f"note: a game has passed 27,000 agent steps; {advice}"]


def test_on_a_terminal_there_is_a_bar_and_prints_go_above_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    terminal, clock = Terminal(), Clock()
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    with ProgressDisplay(1000, clock=clock) as display:
        for step in (250, 500):
            clock.now += 1
            display.update(step, ROW)
        display.say("saved [bold]as it is[/bold]")
        print("a plain print")
        clock.now += 1
        display.update(1000, ROW)
    print("after")
    output = terminal.close()
    assert "━" in output and "250 of 1,000 agent steps" in output and "return 163.9" in output
    assert output.index("saved [bold]as it is[/bold]") < output.index("a plain print")
    assert output.index("a plain print") < output.rindex("1,000 of 1,000 agent steps")
    assert output.rstrip().endswith("after")


@pytest.mark.parametrize("columns", [1, 2, 5, 20])
def test_narrow_terminals_cut_and_do_not_crash(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))  # otherwise rich asks this process's terminal
    terminal, clock = Terminal(), Clock()
    with ProgressDisplay(1000, stream=terminal.stream, clock=clock) as display:
        clock.now += 1
        display.update(500, ROW)
        display.say("a line that is longer than the terminal")
    lines = re.split(r"[\r\n]+", terminal.close())
    assert max(map(len, lines)) <= columns
    assert any(lines)


@pytest.mark.parametrize("total", [0, 10])
def test_odd_numbers_are_shown(total):
    stream = io.StringIO()
    with ProgressDisplay(total, stream=stream) as display:
        display.update(50, {"total_loss": float("nan"), "recent_full_game_return": None})
    assert "50 agent steps" in stream.getvalue() and "nan" in stream.getvalue()


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


class BrokenTerminal(Broken):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Broken(), BrokenTerminal()])
def test_a_broken_stream_does_not_end_the_run(stream):
    before = sys.stdout
    with ProgressDisplay(10, stream=stream) as display:
        display.update(5, ROW)
        display.say("hello")
    assert sys.stdout is before


def test_a_closed_stream_does_not_end_the_run():
    stream = io.StringIO()
    with ProgressDisplay(10, stream=stream) as display:
        stream.close()
        display.update(5, ROW)
        display.say("hello")


def test_characters_that_a_stream_cannot_show_are_replaced():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    with ProgressDisplay(10, stream=stream) as display:
        display.update(5, ROW)
    stream.flush()
    assert b"5 of 10 agent steps" in raw.getvalue()


def test_errors_of_the_run_pass_through():
    with pytest.raises(RuntimeError, match="training"), ProgressDisplay(10, stream=io.StringIO()):
        raise RuntimeError("training")


def test_a_last_update_beyond_the_total_is_reported():
    stream = io.StringIO()
    with ProgressDisplay(2000, stream=stream, clock=Clock()) as display:
        display.update(2112, {})
    (line,) = stream.getvalue().splitlines()
    assert line == "100 % · 2,112 agent steps (2,000 requested)"


@pytest.mark.parametrize(("lives", "shown"), [(3, False), (7, True)])
def test_a_life_is_spoken_of_where_a_game_has_several(lives, shown):
    stream = io.StringIO()
    with ProgressDisplay(2000, stream=stream, clock=Clock()) as display:
        display.update(100, ROW | {"lives": lives, "recent_life_return": 41.0})
    assert ("per life 41" in stream.getvalue()) is shown
