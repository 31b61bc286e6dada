"""Conversion of Gymnasium observations to two kinds of frames: uint8 images and float vectors."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, flatdim
from jaxtyping import Float

from fastweights.host import one_line

SUPPORTED = (
    "images (Box, uint8, 2 or 3 axes), vectors (other Boxes, up to 2 axes), Discrete, "
    "MultiDiscrete, MultiBinary, and Tuple and Dict of all of these except images"
)


class FrameFormat(NamedTuple):
    """Shape and dtype of an environment's frames, and their conversion; `convert` copies."""

    shape: tuple[int, ...]  # (C, H, W) or (N,)
    dtype: np.dtype
    convert: Callable[[Any], np.ndarray]  # a batch as Gymnasium returns it -> [B, *shape]


def frame_format(space: Space, name: str = "this environment") -> FrameFormat:
    """Return the conversion of observations of `space` to frames.

    - uint8 images: [H, W] -> [1, H, W]. With three axes, the shorter of the first and the last is
      taken to be the channels, and [H, W, C] becomes [C, H, W]. Values stay in 0..255.
    - All other spaces, including nested ones: the float32 vector of `gymnasium.spaces.flatten`,
      with Discrete and the components of MultiDiscrete one-hot. Bytes (uint8, as in Atari's RAM)
      are divided by their upper bound, so that they lie in [0, 1], as images do in a stem.

    Args:
        space: observation space of one environment.
        name: the environment's name in error messages.

    Raises:
        ValueError: an unsupported space. The message says what is supported and which wrapper
            helps.
    """
    is_image = _is_image(space)
    odd = None if is_image else _unsupported(space)
    if odd is not None:
        inside = "" if odd is space else f", with {in_one_line(odd)} inside"
        raise ValueError(
            f"{name} has the observation space {in_one_line(space)}{inside}, which is not "
            f"supported; supported are {SUPPORTED}; wrap the environment in "
            f"gymnasium.wrappers.{_wrapper(space)}"
        )
    size = flatdim(space)
    if size == 0:
        raise ValueError(
            f"{name} has the observation space {in_one_line(space)}, which holds no numbers"
        )
    if is_image:
        return _image(space.shape)
    return FrameFormat((size,), np.dtype(np.float32), _flattener(space))


def in_one_line(space: Space) -> str:
    """Return `str(space)` without line breaks."""
    return one_line(str(space))


def _is_image(space: Space) -> bool:
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


def _unsupported(space: Space) -> Space | None:
    """Return the first part of `space` that cannot become part of a vector; None if all can."""
    if isinstance(space, Tuple | Dict):
        return next(filter(None, map(_unsupported, parts(space))), None)
    if isinstance(space, Box):
        return space if _is_image(space) or len(space.shape) > 2 else None
    return None if isinstance(space, Discrete | MultiDiscrete | MultiBinary) else space


def _wrapper(space: Space) -> str:
    """Return the Gymnasium wrapper that converts `space` to a supported space."""
    if isinstance(space, Box) and space.dtype == np.uint8:
        return "ReshapeObservation"  # turns a stack of pictures into channels
    if isinstance(space, Tuple | Dict):
        return "TransformObservation, for example to select one part"
    try:
        return "FlattenObservation" if space.is_np_flattenable else "TransformObservation"
    except NotImplementedError:  # a kind of space that does not say
        return "TransformObservation"


def _image(shape: tuple[int, ...]) -> FrameFormat:
    if len(shape) == 2:
        return FrameFormat((1, *shape), np.dtype(np.uint8), lambda batch: batch[:, None].copy())
    if _is_channels_first(shape):
        return FrameFormat(shape, np.dtype(np.uint8), np.copy)
    height, width, channels = shape

    def channels_first(batch: np.ndarray) -> np.ndarray:
        return batch.transpose(0, 3, 1, 2).copy()

    return FrameFormat((channels, height, width), np.dtype(np.uint8), channels_first)


def _is_channels_first(shape: tuple[int, ...]) -> bool:
    """Return whether an image's channels are its first axis rather than its last.

    If height and width are equal, the channels are the axis that differs; otherwise, the shorter.
    """
    first, middle, last = shape
    if first != last and middle in (first, last):
        return middle == last
    return first <= last


def parts(space: Tuple | Dict) -> Iterator[Space]:
    """Yield the spaces directly inside `space`, in Gymnasium's order."""
    return iter(space.spaces.values() if isinstance(space, Dict) else space.spaces)


def parts_of(batch: Any, space: Tuple | Dict) -> Iterator[Any]:
    """Yield the values of a batch of `space` for each of `parts(space)`."""
    return (batch[key] for key in space.spaces) if isinstance(space, Dict) else iter(batch)


def _flattener(space: Space) -> Callable[[Any], Float[np.ndarray, "B N"]]:
    """Return `gymnasium.spaces.flatten` for whole batches, into new float32 vectors."""
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
    if isinstance(space, Box) and space.dtype == np.uint8:
        largest = np.maximum(space.high.reshape(size), 1).astype(np.float32)
        return lambda batch: batch.reshape(len(batch), size) / largest
    return lambda batch: batch.reshape(len(batch), size).astype(np.float32)


def _one_hot(sizes: np.ndarray, starts: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a one-hot encoder of integers [B] or [B, ...], each with its own range and start."""
    sizes, starts = sizes.astype(np.int64), starts.astype(np.int64)
    width = int(sizes.sum())
    shift = np.cumsum(sizes) - sizes - starts

    def look_up(batch: np.ndarray) -> np.ndarray:
        vectors = np.zeros((len(batch), width), np.float32)
        columns = batch.reshape(len(batch), -1).astype(np.int64) + shift
        np.put_along_axis(vectors, columns, 1.0, axis=1)
        return vectors

    return look_up
