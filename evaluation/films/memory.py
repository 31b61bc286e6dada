"""The memory: fast-weight matrices with their vectors, gates and cells, or no memory.

The names and shapes returned by a core's `inspect` determine its panels.
"""

import math

import numpy as np

from fastweights.evaluation.films.drawing import (
    FAINT,
    LINES,
    diverging,
    enlarge,
    paste,
    sequential,
    write,
)
from fastweights.evaluation.films.game import in_a_square
from fastweights.evaluation.films.moments import Moment
from fastweights.evaluation.films.panel import Panel
from fastweights.evaluation.films.timelines import Lines

_HEAD, _BAR, _GAP = 20, 8, 6  # pixels: heading, width of k and q, gap
_STRENGTHS = 22  # pixels below a matrix
_HEIGHT = 560  # maximum height of all matrices of a core together, in pixels
_IN_0_TO_1, _WEIGHTS = "gate", "fast_weights"
_VECTORS = ("key", "query", "value")


class Matrices(Panel):
    """All heads' matrices of one layer, key axis down; k and q on the left, beta below.

    Several keys of a head stand side by side. k and q share one scale: from 0 upwards until a
    negative value occurs, symmetric from then on.
    """

    def __init__(
        self,
        layer: int,
        name: str,
        inside: dict[str, np.ndarray],
        size: tuple[int, int],
        title: str,
    ):
        self._layer, self._name, self._title = layer, name, title
        self._prefix = name.removesuffix(_WEIGHTS) if name.endswith(_WEIGHTS) else ""
        shape = heads(inside[name]).shape
        counts = {
            vector: inside[self._prefix + vector].size / (shape[0] * shape[1])
            for vector in ("key", "query")
            if self._prefix + vector in inside
        }
        # A core of one's own may have keys of another length than the matrix's key axis.
        self._vectors = {vector: int(n) for vector, n in counts.items() if n.is_integer()}
        # At least the width of two bars, which the β of the strengths needs.
        self._left = max(2, sum(self._vectors.values())) * (_BAR + 2)
        self._zoom, self._per_line = _fit(*shape, self._left, *size)
        self._cell = _cell(*shape[1:], self._left, self._zoom)
        lines = -(-shape[0] // self._per_line)
        self.size = (_HEAD + lines * self._cell[0], size[1])
        self._scale, self._vector_scale, self._signed = 0.0, 0.0, False
        self._strongest = 1.0  # maximum write strength: 2 once a strength above 1 was seen

    def draw(self, area: np.ndarray, moment: Moment) -> None:
        inside = moment.layers[self._layer]
        matrices = heads(inside[self._name])
        self._scale = max(self._scale, float(np.abs(matrices).max()))
        bars = [inside[self._prefix + name] for name in self._vectors]
        bars = [bar.reshape(len(matrices), -1, matrices.shape[1]) for bar in bars]
        for bar in bars:
            self._vector_scale = max(self._vector_scale, float(np.abs(bar).max()))
            self._signed = self._signed or bool((bar < 0).any())
        write(area, self._heading(), 0, 0)
        strengths = inside.get(self._prefix + "strength")
        for index, matrix in enumerate(matrices):
            line, place = divmod(index, self._per_line)
            y, x = _HEAD + line * self._cell[0], place * self._cell[1]
            cell = area[y : y + self._cell[0], x : x + self._cell[1] - _GAP]
            self._draw_head(cell, matrix, [one for bar in bars for one in bar[index]])
            if strengths is not None:
                self._strongest = 2.0 if strengths.max() > 1 else self._strongest
                self._draw_strengths(cell, strengths.reshape(len(matrices), -1)[index])

    def _heading(self) -> str:
        words = f"{self._title}{self._name.replace('_', ' ')} ±{self._scale:.3g}"
        if not self._vectors:
            return words
        named = {"key": "keys", "query": "queries"}
        left = [v if n == 1 else f"{n} {named[v]}" for v, n in self._vectors.items()]
        low = f"-{self._vector_scale:.3g}" if self._signed else "0"
        return f"{words}; left: {', '.join(left)}, {low} to {self._vector_scale:.3g}"

    def _draw_head(self, cell: np.ndarray, matrix: np.ndarray, bars: list[np.ndarray]) -> None:
        colours = diverging if self._signed else sequential
        for index, bar in enumerate(bars):
            picture = colours(bar[:, None], self._vector_scale)
            paste(cell, enlarge(picture, self._zoom, _BAR), 0, index * (_BAR + 2))
        x = self._left
        paste(cell, enlarge(diverging(matrix, self._scale), self._zoom), 0, x)
        height, width = (side * self._zoom for side in matrix.shape)
        cell[height, x : x + width] = FAINT
        cell[:height, min(x + width, cell.shape[1] - 1)] = FAINT

    def _draw_strengths(self, cell: np.ndarray, strengths: np.ndarray) -> None:
        bottom, x = self._cell[0] - _STRENGTHS + 2, self._left
        room = cell.shape[1] - x
        write(cell, "β", bottom - 4, 4, size=11)
        thick = max(2, 8 // len(strengths))
        for index, strength in enumerate(strengths):
            bar = cell[bottom + index * (thick + 1) :][:thick, x:]
            bar[:] = FAINT
            bar[:, : round(float(strength) / self._strongest * room)] = LINES[2]


class Vectors(Panel):
    """Vectors of one layer as squares: gates from 0 to 1, other values around 0."""

    def __init__(self, layer: int, inside: dict[str, np.ndarray], width: int):
        self._layer = layer
        self._names = _squares(inside)
        self._scales = dict.fromkeys(self._names, 0.0)
        side = in_a_square(inside[self._names[0]]).shape[1]
        self._pitch = min(180, width // len(self._names))
        self._zoom = max(1, (self._pitch - _GAP) // side)
        self.size = (_HEAD + side * self._zoom + _GAP, width)

    def draw(self, area: np.ndarray, moment: Moment) -> None:
        for index, name in enumerate(self._names):
            values, x = moment.layers[self._layer][name], index * self._pitch
            self._scales[name] = max(self._scales[name], float(np.abs(values).max()))
            square, words = in_a_square(values), name.replace("_", " ")
            if name.endswith(_IN_0_TO_1):
                picture, words = sequential(square), f"{words}, 0 to 1"
            else:
                picture = diverging(square, self._scales[name])
                words = f"{words} ±{self._scales[name]:.3g}"
            write(area, words, 0, x)
            paste(area[:, : x + self._pitch - _GAP], enlarge(picture, self._zoom), _HEAD, x)


class NoMemory(Panel):
    """A note that the core has no state."""

    def __init__(self, width: int):
        self.size = (40, width)

    def label(self, area: np.ndarray) -> None:
        write(area, "This core has no memory: only the current input decides.", 8, 0, size=14)

    def draw(self, area: np.ndarray, moment: Moment) -> None:
        pass


class Change:
    """The norm of a tensor's change in one step, one number per matrix; zero after a reset."""

    def __init__(self, layer: int, name: str):
        self._layer, self._name = layer, name
        self._before: np.ndarray | float = 0.0

    def __call__(self, moment: Moment) -> np.ndarray:
        now = moment.layers[self._layer][self._name]
        before = 0.0 if moment.is_first else self._before
        self._before = now
        return norms(now - before)


def norms(values: np.ndarray) -> np.ndarray:
    """Return the Frobenius norm of every head's matrix, or the norm of one vector."""
    return np.linalg.norm(values.reshape(-1, math.prod(values.shape[-2:])), axis=1)


def heads(matrices: np.ndarray) -> np.ndarray:
    """Reshape [..., K, V] to [all heads, K, V]."""
    return matrices.reshape(-1, *matrices.shape[-2:])


def is_matrices(name: str, values: np.ndarray) -> bool:
    """Return whether a layer's tensor holds one matrix per head, not several vectors per head."""
    return values.ndim >= 3 and not name.endswith(_VECTORS)


def panels(layers: list[dict[str, np.ndarray]], width: int) -> list[Panel]:
    """Return the panels that show the memory at one moment."""
    if not layers:
        return [NoMemory(width)]
    size = (_HEIGHT // max(1, len(_matrices(layers))), width)
    result: list[Panel] = []
    for layer, inside in enumerate(layers):
        for name, values in inside.items():
            if is_matrices(name, values):
                title = f"layer {layer + 1}, " if len(layers) > 1 else ""
                result.append(Matrices(layer, name, inside, size, title))
        if _squares(inside):
            result.append(Vectors(layer, inside, width))
    return result


def timelines(layers: list[dict[str, np.ndarray]], width: int) -> list[Lines]:
    """Return the panels of the memory over time: norms, changes, write strengths, mean gates."""
    result: list[Lines] = []
    for layer, inside in enumerate(layers):
        where = f"layer {layer + 1}" if len(layers) > 1 else ""
        for name, values in inside.items():
            words = _SHORT.get(name, name.replace("_", " "))
            if is_matrices(name, values) or name == "cell":
                result.append(Lines(f"norm of {words}", width, _norm(layer, name), where=where))
                result.append(Lines(f"change of {words}", width, Change(layer, name), where=where))
            elif name.endswith("strength"):
                measure = _flat(layer, name)
                result.append(Lines(words, width, measure, (0.0, 1.0), where=where))
            elif name.endswith(_IN_0_TO_1):
                limits, measure = (0.0, 1.0), _mean(layer, name)
                result.append(
                    Lines(f"mean {words}", width, measure, limits, fixed=True, where=where)
                )
    return result


def explanations(layers: list[dict[str, np.ndarray]]) -> list[str]:
    """Return explanations of the words beside the timelines, as far as the layers need them."""
    said = []
    if _matrices(layers):
        said.append("W: a head's matrix of fast weights. norm: its Frobenius norm.")
        said.append(
            "change: the Frobenius norm of the difference between W now and one agent step ago."
        )
    elif any(name == "cell" for inside in layers for name in inside):
        said.append(
            "norm: the vector's norm. change: the norm of the difference from one agent step ago."
        )
    if any("recurrent_fast_weights" in inside for inside in layers):
        said.append("R: the same for the recurrent fast weights.")
    if any(name.endswith("strength") for inside in layers for name in inside):
        said.append("strength β: the fraction of a write that is carried out.")
    return said


def most_matrices(layers: list[dict[str, np.ndarray]]) -> int:
    """Return the maximum number of lines in a timeline of the memory."""
    return max((len(heads(matrices)) for matrices in _matrices(layers)), default=1)


def _matrices(layers: list[dict[str, np.ndarray]]) -> list[np.ndarray]:
    """Return the tensors of all layers that hold one matrix per head."""
    return [values for inside in layers for n, values in inside.items() if is_matrices(n, values)]


def _squares(inside: dict[str, np.ndarray]) -> list[str]:
    """Return the names of a layer's vectors, without strengths and step counts."""
    vectors = (name for name, values in inside.items() if values.ndim == 1)
    return [name for name in vectors if not name.endswith(("strength", "count"))]


_SHORT = {
    "fast_weights": "W",
    "recurrent_fast_weights": "R",
    "shift": "W",
    "strength": "strength β",
    "recurrent_strength": "strength β of R",
}


def _norm(layer: int, name: str):
    return lambda moment: norms(moment.layers[layer][name])


def _flat(layer: int, name: str):
    return lambda moment: moment.layers[layer][name].reshape(-1)


def _mean(layer: int, name: str):
    return lambda moment: [moment.layers[layer][name].mean()]


def _cell(rows: int, columns: int, left: int, zoom: int) -> tuple[int, int]:
    return rows * zoom + _STRENGTHS, left + columns * zoom + _GAP + 2


def _fit(
    count: int, rows: int, columns: int, left: int, height: int, width: int
) -> tuple[int, int]:
    """Return pixels per entry and matrices per line: the largest that fit in equal lines.

    `left`: pixels of the bars beside a matrix.
    """
    for zoom in range(6, 0, -1):
        cell = _cell(rows, columns, left, zoom)
        per_line = max(1, min(count, width // cell[1]))
        if count % per_line == 0 and _HEAD + count // per_line * cell[0] <= height:
            break
    return zoom, per_line
