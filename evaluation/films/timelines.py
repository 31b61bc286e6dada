"""The last few hundred agent steps: lines, and the policy as a heat map.

Blue dotted lines mark memory resets, orange ones lost lives.
"""

import abc
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from fastweights.evaluation.films.drawing import FAINT, LINES, enlarge, plot, sequential, write
from fastweights.evaluation.films.moments import Moment
from fastweights.evaluation.films.panel import Panel

LABEL = 140  # pixels left of the plot
PIXELS = 2  # per step
_HEIGHT = 46  # pixels of lines
_ROW = 13  # pixels per action
_LINE, _KEY = 16, 92  # pixels: a line of the key, and the distance between colours


class Timeline(Panel):
    """Abstract: a panel that records `measure` of each moment and draws it with `chart`."""

    def __init__(self, width: int, height: int, measure: Callable[[Moment], Sequence[float]]):
        self.size = (height, width)
        self._measure = measure
        steps = (width - LABEL) // PIXELS
        self._values: deque[np.ndarray] = deque(maxlen=steps)
        self._events: deque[tuple[bool, bool]] = deque(maxlen=steps)

    def draw(self, area: np.ndarray, moment: Moment) -> None:
        """Add the moment's measure and draw the chart."""
        self._values.append(np.asarray(self._measure(moment), np.float32))
        self._events.append((moment.is_first, moment.life_lost))
        chart = area[: self.size[0] - 4, LABEL:]
        self.chart(area, chart, np.stack(self._values))
        for line, colour in zip(np.array(self._events).T, LINES, strict=False):
            for column in np.flatnonzero(line) * PIXELS:
                chart[::3, column : column + PIXELS] = colour

    @abc.abstractmethod
    def chart(self, area: np.ndarray, chart: np.ndarray, values: np.ndarray) -> None:
        """Draw `values` [n, lines] into `chart`, a part of `area`."""


class Lines(Timeline):
    """Lines between a lowest and a highest value: `limits`, widened by values beyond them.

    With `fixed`, the limits never change. `where` precedes the two values in words.
    """

    def __init__(
        self,
        name: str,
        width: int,
        measure: Callable[[Moment], Sequence[float]],
        limits: tuple[float, float] = (0.0, 0.0),
        fixed: bool = False,
        where: str = "",
    ):
        super().__init__(width, _HEIGHT, measure)
        self._name, self._fixed = name, fixed
        self._where = f"{where}, " if where else ""
        self._low, self._high = limits

    def label(self, area: np.ndarray) -> None:
        write(area, self._name, 0, 0)
        area[: self.size[0] - 4, LABEL - 1] = FAINT
        area[self.size[0] - 5, LABEL:] = FAINT

    def chart(self, area: np.ndarray, chart: np.ndarray, values: np.ndarray) -> None:
        if not self._fixed:
            newest = values[-1][np.isfinite(values[-1])]
            self._low = min(self._low, newest.min(initial=0.0))
            self._high = max(self._high, newest.max(initial=0.0))
        limits = f"{self._where}{self._low:.3g} to {self._high:.3g}"
        write(area[:, : LABEL - 2], limits, 16, 0, grey=110, size=11)
        plot(chart, values, self._low, self._high, PIXELS)


class Policy(Timeline):
    """One row per action: white is improbable, dark blue certain, orange the chosen action."""

    def __init__(self, width: int, action_meanings: Sequence[str]):
        self._actions = action_meanings
        height = _ROW * len(action_meanings) + 6
        super().__init__(width, height, lambda moment: [*moment.policy, moment.action])

    def label(self, area: np.ndarray) -> None:
        for index, meaning in enumerate(self._actions):
            write(area, meaning.lower(), index * _ROW, 0, size=10)

    def chart(self, area: np.ndarray, chart: np.ndarray, values: np.ndarray) -> None:
        policy, actions = values[:, :-1], values[:, -1].astype(int)
        picture = enlarge(sequential(policy.T), _ROW, PIXELS)
        chart[: len(picture), : picture.shape[1]] = picture
        for offset in range(PIXELS):
            columns = np.arange(len(actions)) * PIXELS + offset
            for row in (_ROW // 2, _ROW // 2 + 1):
                chart[actions * _ROW + row, columns] = LINES[1]


class Key(Panel):
    """A key to the colours and words of the timelines."""

    def __init__(self, sentences: Sequence[str], matrices: int, width: int):
        self._sentences = sentences
        self._shown = min(matrices, len(LINES)) if matrices > 1 else 0
        self.size = (_LINE * (len(sentences) + 1 + bool(self._shown)), width)

    def label(self, area: np.ndarray) -> None:
        colours = {f"matrix {index + 1}": LINES[index] for index in range(self._shown)}
        events = {"dotted: memory reset": LINES[0], "dotted: life lost": LINES[1]}
        lines = [colours, events] if colours else [events]
        dash, dots = np.arange(18), np.arange(0, 18, 2)
        for row, named in enumerate(lines):
            is_line = named is colours
            for place, (words, colour) in enumerate(named.items()):
                x = place * (_KEY if is_line else 2 * _KEY)
                area[row * _LINE + 6 : row * _LINE + 9, x + (dash if is_line else dots)] = colour
                write(area, words, row * _LINE, x + 24, grey=110, size=11)
        for row, words in enumerate(self._sentences, len(lines)):
            write(area, words, row * _LINE, 0, grey=110, size=11)

    def draw(self, area: np.ndarray, moment: Moment) -> None:
        return
