"""A panel: a rectangle of the screen that shows one thing of a moment."""

import abc

import numpy as np

from fastweights.evaluation.films.moments import Moment


class Panel(abc.ABC):
    """`size` is (height, width) in pixels, fixed; `draw` gets an area of that size."""

    size: tuple[int, int]

    def label(self, area: np.ndarray) -> None:
        """Draw, once, what stays the same over the film: nothing, for most."""
        return

    @abc.abstractmethod
    def draw(self, area: np.ndarray, moment: Moment) -> None:
        """Draw what changes, over the labels; called once a moment, in order."""
