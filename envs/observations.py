"""From a Gymnasium observation space to the two kinds of frame: uint8 images and float vectors."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, flatdim
from jaxtyping import Float

SUPPORTED = (
    "images (Box, uint8, 2 or 3 axes), vectors (other Boxes, up to 2 axes), Discrete, "
    "MultiDiscrete, MultiBinary, and Tuple and Dict of all these but images"
)


class FrameFormat(NamedTuple):
    """What an environment's frames are, and how to make them: `convert` copies."""

    shape: tuple[int, ...]  # (C, H, W) or (N,)
    dtype: np.dtype
    convert: Callable[[Any], np.ndarray]  # a batch as Gymnasium has it -> [B, *shape]


def frame_format(space: Space, name: str = "this environment") -> FrameFormat:
    """How observations of `space`, that of the environment `name`, become frames.

    - uint8 images: [H, W] -> [1, H, W]; of three axes the shorter of the first and the last is
      taken for the channels, and [H, W, C] becomes [C, H, W]. Values stay 0..255.
    - All others, nested ones too: the float32 vector of `gymnasium.spaces.flatten`, where Discrete
      and the components of MultiDiscrete are one-hot.

    Raises:
        ValueError: any other space; it names those supported, and the wrapper that helps.
    """
    if _is_image(space):
        return _image(space.shape)
    if (odd := _unsupported(space)) is None:
        return FrameFormat((flatdim(space),), np.dtype(np.float32), _flattener(space))
    inside = "" if odd is space else f", with {in_one_line(odd)} inside"
    raise ValueError(
        f"{name} has observations of {in_one_line(space)}{inside}, which are not supported: "
        f"{SUPPORTED} are; wrap it in gymnasium.wrappers.{_wrapper(space)}"
    )


def in_one_line(space: Space) -> str:
    """`str(space)`, which can have several lines, in one."""
    return " ".join(str(space).split())


def _is_image(space: Space) -> bool:
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


def _unsupported(space: Space) -> Space | None:
    """The first part of `space` that is no vector; None where there is none such."""
    if isinstance(space, Tuple | Dict):
        return next(filter(None, map(_unsupported, parts(space))), None)
    if isinstance(space, Box):
        return space if _is_image(space) or len(space.shape) > 2 else None
    return None if isinstance(space, Discrete | MultiDiscrete | MultiBinary) else space


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


def parts(space: Tuple | Dict) -> Iterator[Space]:
    """The spaces directly inside, in Gymnasium's order."""
    return iter(space.spaces.values() if isinstance(space, Dict) else space.spaces)


def parts_of(batch: Any, space: Tuple | Dict) -> Iterator[Any]:
    """What a batch of `space` has for each of `parts(space)`."""
    return (batch[key] for key in space.spaces) if isinstance(space, Dict) else iter(batch)


def _flattener(space: Space) -> Callable[[Any], Float[np.ndarray, "B N"]]:
    """`gymnasium.spaces.flatten` for whole batches: into fresh float32 vectors."""
    if isinstance(space, Tuple | Dict):
        flatteners = [_flattener(part) for part in parts(space)]

        def join(batch: Any) -> np.ndarray:
            pairs = zip(flatteners, parts_of(batch, space), strict=True)
            return np.concatenate([flatten(part) for flatten, part in pairs], axis=1)

        return join
    if isinstance(space, Discrete):
        return _one_hot(np.array([space.n]), np.array([space.start]))
    if isinstance(space, MultiDiscrete):
        return _one_hot(space.nvec.ravel(), space.start.ravel())
    size = flatdim(space)
    return lambda batch: batch.reshape(len(batch), size).astype(np.float32)


def _one_hot(sizes: np.ndarray, starts: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Of numbers [B] or [B, ...], each in a range of its own that begins at its start."""
    sizes, starts = sizes.astype(np.int64), starts.astype(np.int64)
    width = int(sizes.sum())
    shift = np.cumsum(sizes) - sizes - starts

    def look_up(batch: np.ndarray) -> np.ndarray:
        vectors = np.zeros((len(batch), width), np.float32)
        columns = batch.reshape(len(batch), -1).astype(np.int64) + shift
        np.put_along_axis(vectors, columns, 1.0, axis=1)
        return vectors

    return look_up
