"""A panel: a rectangle of the screen that shows one aspect of a moment."""

import abc

import numpy as np

from fastweights.evaluation.films.moments import Moment


class Panel(abc.ABC):
    """Abstract. `size` is (height, width) in pixels, fixed; `draw` gets an area of this size."""

    size: tuple[int, int]

    def label(self, area: np.ndarray) -> None:
        """Draw the parts that never change, once per film; none by default."""
        return

    @abc.abstractmethod
    def draw(self, area: np.ndarray, moment: Moment) -> None:
        """Draw the changing parts over the labels; called once per moment, in order."""
