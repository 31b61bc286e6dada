"""The whole picture: game, input and words on the left; decisions and memory on the right."""

from collections.abc import Sequence

import numpy as np

from fastweights.evaluation.films import memory
from fastweights.evaluation.films.drawing import PAPER
from fastweights.evaluation.films.game import WIDTH as GAME_WIDTH
from fastweights.evaluation.films.game import Game, Input, Words
from fastweights.evaluation.films.moments import Moment
from fastweights.evaluation.films.panel import Panel
from fastweights.evaluation.films.timelines import Key, Lines, Policy

WIDTH = 1280  # pixels
_MARGIN = 10
_RIGHT = WIDTH - GAME_WIDTH - 3 * _MARGIN

Place = tuple[Panel, int, int]  # the panel and its upper left corner (y, x)


class Screen:
    """Lays out one film for the kind of agent in the moment `first`, and draws its moments.

    `is_stack`: the channels of frames are grey pictures, even if there are three.
    """

    def __init__(
        self, first: Moment, title: str, action_meanings: Sequence[str], is_stack: bool = False
    ):
        left: list[Panel] = [Words(title, action_meanings), Input(first, is_stack)]
        if first.picture is not None:
            left.insert(0, Game(first))
        begin, half = GAME_WIDTH + 2 * _MARGIN, (_RIGHT - _MARGIN) // 2
        inside = _column(memory.panels(first.layers, _RIGHT), _MARGIN, begin)
        timelines = [
            Lines("value", half, lambda moment: [moment.value]),
            Policy(half, action_meanings),
            *memory.timelines(first.layers, half),
        ]
        self._places = _column(left, _MARGIN, _MARGIN) + inside
        for index, column in enumerate(_two_columns(timelines)):
            x = begin + index * (half + _MARGIN)
            self._places += _column(column, _bottom(inside) + _MARGIN, x)
        key = Key(memory.explanations(first.layers), memory.most_matrices(first.layers), _RIGHT)
        self._places.append((key, _bottom(self._places[len(left) :]) + _MARGIN, begin))
        height = _bottom(self._places) + _MARGIN
        self._background = np.full((height + height % 2, WIDTH, 3), PAPER, np.uint8)
        for panel, y, x in self._places:
            panel.label(_area(self._background, panel, y, x))

    def draw(self, moment: Moment) -> np.ndarray:
        """Return the picture [H, 1280, 3] uint8 of the next moment; H is even and constant."""
        picture = self._background.copy()
        for panel, y, x in self._places:
            panel.draw(_area(picture, panel, y, x), moment)
        return picture


def _two_columns(panels: list[Panel]) -> tuple[list[Panel], list[Panel]]:
    """Split panels in order; the first column takes about half of the total height."""
    heights = np.cumsum([panel.size[0] for panel in panels])
    middle = 1 + int(np.searchsorted(heights, heights[-1] / 2))
    return panels[:middle], panels[middle:]


def _bottom(places: list[Place]) -> int:
    return max((y + panel.size[0] for panel, y, _ in places), default=0)


def _column(panels: Sequence[Panel], y: int, x: int) -> list[Place]:
    places = []
    for panel in panels:
        places.append((panel, y, x))
        y += panel.size[0] + _MARGIN // 2
    return places


def _area(picture: np.ndarray, panel: Panel, y: int, x: int) -> np.ndarray:
    height, width = panel.size
    return picture[y : y + height, x : x + width]
