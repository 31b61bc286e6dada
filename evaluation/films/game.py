"""The left side of the screen: the game, the network's input, and the moment in words."""

import math
import textwrap
from collections.abc import Sequence

import numpy as np

from fastweights.evaluation.films.drawing import LINES, diverging, enlarge, fitted, paste, write
from fastweights.evaluation.films.moments import Moment
from fastweights.evaluation.films.panel import Panel

WIDTH = 336  # pixels
_BORDER = 8
_MEMORY_RESET, _LIFE_LOST = LINES[0], LINES[1]
_LINE, _LETTERS = 18, 48  # height of a text line in pixels, and letters that fit into it
_LINGER = 10  # agent steps for which an event stays visible


class Game(Panel):
    """The emulator's pixels, enlarged by an integer factor if they fit, otherwise shrunk.

    The border colour marks events.
    """

    def __init__(self, moment: Moment):
        self.size = (len(self._picture(moment)) + 2 * _BORDER, WIDTH)

    def draw(self, area: np.ndarray, moment: Moment) -> None:
        if moment.life_lost:
            area[:] = _LIFE_LOST
        elif moment.is_first:
            area[:] = _MEMORY_RESET
        paste(area[_BORDER:-_BORDER], self._picture(moment), 0, _BORDER)

    def _picture(self, moment: Moment) -> np.ndarray:
        return fitted(moment.picture, WIDTH - 2 * _BORDER)


class Input(Panel):
    """The network's input: a stack of grey pictures (oldest first), a colour picture or a vector.

    Three channels are colours unless `is_stack` says that they are grey pictures.
    """

    def __init__(self, moment: Moment, is_stack: bool = False):
        self._scale, self._is_stack = 0.0, is_stack
        height, width = self._picture(moment.frame).shape[:2]
        self._factor = max(1, 168 // max(height, width))
        self.size = (height * self._factor + 18, WIDTH)
        self._shape = "x".join(map(str, moment.frame.shape))

    def label(self, area: np.ndarray) -> None:
        write(area, f"input, {self._shape}", 0, _BORDER)

    def draw(self, area: np.ndarray, moment: Moment) -> None:
        paste(area, enlarge(self._picture(moment.frame), self._factor), 18, _BORDER)

    def _picture(self, frame: np.ndarray) -> np.ndarray:
        if frame.ndim == 1:
            self._scale = max(self._scale, float(np.abs(frame).max()))
            return diverging(in_a_square(frame), self._scale)
        if len(frame) == 3 and not self._is_stack:
            return frame.transpose(1, 2, 0)
        columns = math.ceil(math.sqrt(len(frame)))
        blank = np.full((-len(frame) % columns, *frame.shape[1:]), 255, frame.dtype)
        pictures = np.concatenate([frame, blank])
        rows = [
            np.concatenate(list(row), 1) for row in np.split(pictures, len(pictures) // columns)
        ]
        return np.concatenate(rows)[..., None].repeat(3, -1)


class Words(Panel):
    """Step, action, reward, return, and recent events."""

    def __init__(self, title: str, action_meanings: Sequence[str]):
        self._title, self._actions = textwrap.wrap(title, _LETTERS), action_meanings
        self.size = (_LINE * (len(self._title) + 5) + 10, WIDTH)
        self._return, self._lives_lost, self._resets = 0.0, 0, 0
        self._last: dict[str, int] = {}

    def label(self, area: np.ndarray) -> None:
        for index, line in enumerate(self._title):
            write(area, line, _LINE * index, _BORDER)

    def draw(self, area: np.ndarray, moment: Moment) -> None:
        self._note(moment)
        lines = (
            f"agent step {moment.step:,}",
            f"action {self._actions[moment.action]}, reward {moment.reward:g}",
            f"return {self._return:g}, value {moment.value:.2f}",
            f"lives lost {self._lives_lost}, memory resets {self._resets}",
        )
        first = len(self._title)
        for index, line in enumerate(lines, first):
            write(area, line, _LINE * index, _BORDER)
        recent = [word for word, step in self._last.items() if moment.step - step < _LINGER]
        write(area, " · ".join(recent), _LINE * (first + 4), _BORDER, grey=0, size=14)

    def _note(self, moment: Moment) -> None:
        self._return += moment.reward
        self._lives_lost += moment.life_lost
        self._resets += moment.is_first
        happened = {
            "MEMORY RESET": moment.is_first,
            "LIFE LOST": moment.life_lost,
            "GAME OVER": moment.game_over,
        }
        self._last |= {word: moment.step for word, now in happened.items() if now}


def in_a_square(values: np.ndarray) -> np.ndarray:
    """Arrange [N] row by row in a roughly square picture; NaN fills the rest."""
    columns = math.ceil(math.sqrt(len(values)))
    padded = np.full(columns * math.ceil(len(values) / columns), np.nan, np.float32)
    padded[: len(values)] = values
    return padded.reshape(-1, columns)
