"""A window that shows pictures as they arrive, on machines with a display."""

import time
from typing import Self

import numpy as np

from fastweights.host import UserError

_NO_WINDOW = (
    "--live: no window can be opened here (no display, or no GUI toolkit such as tkinter): "
    "leave --live out to write a film"
)


class Window:
    """A matplotlib window; the picture is resized with it.

    `show` keeps to `fps` pictures per second, or fewer if drawing is slower.

    Raises:
        UserError: there is no display, or no toolkit.
    """

    def __init__(self, title: str, fps: float):
        from matplotlib import backends, pyplot

        try:
            figure = pyplot.figure(title)
        except (ImportError, RuntimeError) as error:  # also tkinter's TclError
            raise UserError(_NO_WINDOW) from error
        interactive = backends.backend_registry.list_builtin(backends.BackendFilter.INTERACTIVE)
        if pyplot.get_backend().lower() not in {name.lower() for name in interactive}:
            raise UserError(_NO_WINDOW)
        self._pyplot, self._figure = pyplot, figure
        self._image = None
        self._seconds, self._next = 1 / fps, time.monotonic()

    @property
    def is_open(self) -> bool:
        """Whether the window is still open."""
        return self._pyplot.fignum_exists(self._figure.number)

    def show(self, picture: np.ndarray) -> None:
        """Show `picture` [H, W, 3] uint8 when it is due."""
        if self._image is None:
            height, width = (side / self._figure.dpi for side in picture.shape[:2])
            self._figure.set_size_inches(width, height)
            everywhere = self._figure.add_axes((0, 0, 1, 1))
            everywhere.set_axis_off()
            self._image = everywhere.imshow(picture)  # scaled to the display's resolution
        self._image.set_data(picture)
        wait = max(0.001, self._next - time.monotonic())
        self._pyplot.pause(wait)
        self._next = max(self._next + self._seconds, time.monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pyplot.close(self._figure)
