"""From a Gymnasium observation space to the two kinds of frame: uint8 images and float vectors."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete

SUPPORTED = "images (Box, uint8, 2 or 3 axes), vectors (Box, up to 2 axes) and Discrete"


class FrameFormat(NamedTuple):
    """What an environment's frames are, and how to make them: `convert` copies."""

    shape: tuple[int, ...]  # (C, H, W) or (N,)
    dtype: np.dtype
    convert: Callable[[np.ndarray], np.ndarray]  # [B, *space.shape] -> [B, *shape]


def frame_format(space: Space, name: str = "this environment") -> FrameFormat:
    """How observations of `space`, that of the environment `name`, become frames.

    - uint8 images: [H, W] -> [1, H, W]; of three axes the shorter of the first and the last is
      taken for the channels, and [H, W, C] becomes [C, H, W]. Values stay 0..255.
    - Vectors, and anything numeric of up to two axes: flat float32.
    - Discrete: one-hot float32.

    Raises:
        ValueError: any other space; it names those supported, and the wrapper that helps.
    """
    if isinstance(space, Discrete):
        return _one_hot(space)
    if isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3):
        return _image(space.shape)
    if isinstance(space, Box) and len(space.shape) <= 2:
        return _vector(space.shape)
    raise ValueError(
        f"{name} has observations of {_one_line(space)}, which are not supported: {SUPPORTED} "
        f"are; wrap it in gymnasium.wrappers.{_wrapper(space)}"
    )


def _wrapper(space: Space) -> str:
    """Which of Gymnasium's wrappers makes something supported of it."""
    if isinstance(space, Box) and space.dtype == np.uint8:
        return "ReshapeObservation"  # pictures one behind the other: their channels
    return "FlattenObservation" if space.is_np_flattenable else "TransformObservation"


def _image(shape: tuple[int, ...]) -> FrameFormat:
    if len(shape) == 2:
        return FrameFormat((1, *shape), np.dtype(np.uint8), lambda batch: batch[:, None].copy())
    if shape[0] <= shape[2]:
        return FrameFormat(shape, np.dtype(np.uint8), np.copy)
    height, width, channels = shape

    def channels_first(batch: np.ndarray) -> np.ndarray:
        return batch.transpose(0, 3, 1, 2).copy()

    return FrameFormat((channels, height, width), np.dtype(np.uint8), channels_first)


def _vector(shape: tuple[int, ...]) -> FrameFormat:
    size = int(np.prod(shape))

    def flatten(batch: np.ndarray) -> np.ndarray:
        return batch.reshape(len(batch), size).astype(np.float32)

    return FrameFormat((size,), np.dtype(np.float32), flatten)


def _one_hot(space: Discrete) -> FrameFormat:
    rows = np.eye(space.n, dtype=np.float32)

    def look_up(batch: np.ndarray) -> np.ndarray:
        return rows[batch - space.start]

    return FrameFormat((int(space.n),), np.dtype(np.float32), look_up)


def _one_line(space: Space) -> str:
    return " ".join(str(space).split())
