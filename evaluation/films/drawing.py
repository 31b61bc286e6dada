"""Drawing on pictures [H, W, 3] uint8 with NumPy: colour scales, enlarging, text, lines.

A film has tens of thousands of frames, and a plotting library takes a tenth of a second per frame.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np

from fastweights.evaluation.palette import COLOURS

PAPER, INK, FAINT = 255, 40, 205  # grey values


def rgb(colour: str) -> np.ndarray:
    """Return `#RRGGBB` as [3] uint8."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], np.uint8)


LINES = [rgb(colour) for colour in COLOURS]


def _ramp(*stops: str) -> np.ndarray:
    """Return [256, 3] colours between `stops`, evenly spaced."""
    places = np.linspace(0, 255, len(stops))
    channels = np.array([rgb(stop) for stop in stops]).T
    return np.array([np.interp(range(256), places, one) for one in channels]).T.round().astype("u1")


_DIVERGING = _ramp("#00304d", "#0072B2", "#FFFFFF", "#D55E00", "#5c2800")
_SEQUENTIAL = _ramp("#FFFFFF", "#56B4E9", "#0072B2", "#00182b")


def diverging(values: np.ndarray, scale: float) -> np.ndarray:
    """Return colours [..., 3]: blue at -scale, white at 0 and NaN, orange at scale and beyond."""
    return _look_up(_DIVERGING, 0.5 + values / (2 * scale or 1))


def sequential(values: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """Return colours [..., 3]: white at 0, dark blue at scale and beyond."""
    return _look_up(_SEQUENTIAL, values / (scale or 1))


def _look_up(ramp: np.ndarray, share: np.ndarray) -> np.ndarray:
    return ramp[(np.nan_to_num(share, nan=0.5).clip(0, 1) * 255).round().astype(np.uint8)]


def enlarge(picture: np.ndarray, rows: int, columns: int | None = None) -> np.ndarray:
    """Repeat every pixel rows x columns times (rows x rows without `columns`)."""
    return picture.repeat(columns or rows, axis=1).repeat(rows, axis=0)


def fitted(picture: np.ndarray, width: int) -> np.ndarray:
    """Enlarge by an integer factor to at most `width`, or shrink to `width` if wider."""
    height, wide = picture.shape[:2]
    if wide <= width:
        return enlarge(picture, width // wide)
    from PIL import Image

    shrunk = Image.fromarray(picture).resize((width, round(height * width / wide)), Image.BOX)
    return np.asarray(shrunk)


def paste(canvas: np.ndarray, picture: np.ndarray, y: int, x: int) -> None:
    """Paste `picture` onto `canvas` with its upper left corner at (y, x), cropped if too large."""
    height, width = picture.shape[:2]
    area = canvas[y : y + height, x : x + width]
    area[:] = picture[: area.shape[0], : area.shape[1]]


def write(canvas: np.ndarray, text: str, y: int, x: int, grey: int = INK, size: int = 12) -> None:
    """Write `text` with the upper left corner of its line at (y, x)."""
    alpha = _text(text, size)
    area = canvas[y : y + alpha.shape[0], x : x + alpha.shape[1]]
    alpha = alpha[: area.shape[0], : area.shape[1], None]
    area[:] = (area * (1 - alpha) + grey * alpha).astype(np.uint8)


@lru_cache(maxsize=2048)
def _text(text: str, size: int) -> np.ndarray:
    """Return the coverage [height, width] in [0, 1] of text in matplotlib's font."""
    from PIL import Image, ImageDraw

    font = _font(size)
    width = max(1, round(font.getlength(text)))
    image = Image.new("L", (width, round(size * 1.4)))
    ImageDraw.Draw(image).text((0, 0), text, fill=255, font=font)
    return np.asarray(image, np.float32) / 255


@lru_cache
def _font(size: int):
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(
        str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size
    )


def plot(area: np.ndarray, values: np.ndarray, low: float, high: float, step: int) -> None:
    """Draw the columns of `values` [n, lines] as lines over `area`, `step` pixels per row.

    `low` and `high` are the values at the area's lower and upper edges; NaN leaves a gap.
    """
    height = area.shape[0]
    span = high - low or 1.0
    y = (high - values) / span * (height - 1)
    before = np.concatenate([y[:1], y[:-1]])
    rows = np.arange(height)[:, None]
    for line in range(values.shape[1]):
        top = np.fmin(y[:, line], before[:, line]).repeat(step) - 0.5
        bottom = np.fmax(y[:, line], before[:, line]).repeat(step) + 0.5
        area[:, : len(top)][(rows >= top) & (rows <= bottom)] = LINES[line % len(LINES)]
