"""Conversion of a game's `render()` output to pictures for clips and films."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

from fastweights.envs.interface import BrokenEnvironment


class NoPictures(ValueError):
    """A game draws no pictures, or cannot draw on this machine; the message is one line."""


def as_pictures(
    rendered: Sequence[Any], name: str, shape: tuple[int, ...] | None
) -> UInt8[np.ndarray, "B H W 3"]:
    """Return the pictures in colour; grey is repeated, and transparency is dropped.

    Args:
        rendered: result of `render()`, one picture per game.
        name: the environment's name in error messages.
        shape: required shape in colour; None for the shape of the first picture.

    Raises:
        BrokenEnvironment: not one picture per game, or a picture of another shape.
    """
    if rendered is None:
        raise BrokenEnvironment(f"{name}: render() returned None: return a picture")
    pictures = [_in_colour(one, name) for one in rendered]
    shape = shape or pictures[0].shape
    for picture in pictures:
        if picture.shape != shape:
            raise BrokenEnvironment(
                f"{name}: render() returned pictures of shape {picture.shape} after {shape}: keep "
                "one size"
            )
    return np.stack(pictures)


def _in_colour(picture: Any, name: str) -> UInt8[np.ndarray, "H W 3"]:
    if not isinstance(picture, np.ndarray):
        kind = "None" if picture is None else f"a {type(picture).__name__}"
        raise BrokenEnvironment(f"{name}: render() returned {kind}: return a picture")
    colours = picture[..., None] if picture.ndim == 2 else picture
    if picture.dtype != np.uint8 or colours.ndim != 3 or colours.shape[2] not in (1, 3, 4):
        raise BrokenEnvironment(
            f"{name}: render() returned {picture.dtype} of shape {picture.shape}: return uint8 of "
            "shape (H, W, 3)"
        )
    return colours.repeat(3, axis=2) if colours.shape[2] == 1 else colours[..., :3]
