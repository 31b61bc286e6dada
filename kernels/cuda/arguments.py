"""Layout of a kernel's arguments: one struct of eight-byte words.

The struct begins with `Sizes`. Next come the caller's tensors in any layout (`View`, `Flags`: an
address and four strides), then our own contiguous tensors (one address each).
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fastweights.kernels.machinery.signature import Axes

HEAD_SIZES = (8, 16, 32, 64)  # compiled sizes; other sizes are padded to the next one
AXES = 4


class Sizes(NamedTuple):
    """The sizes and options at the start of the struct."""

    time: int
    batch: int
    heads: int
    keys: int
    values: int
    option: int = 0  # its meaning depends on the kernel, such as the version of a Delta RNN
    second_option: int = 0


def padded(size: int) -> int:
    """Return the smallest compiled head size that holds `size`."""
    return next(compiled for compiled in HEAD_SIZES if size <= compiled)


def pack(sizes: Sizes, given: Sequence[Tensor], own: Sequence[Tensor | None]) -> array:
    """Return the argument struct's words; `given` and `own` are in the struct's field order.

    None is a null address: a result that the caller does not need.
    """
    words = array("q", sizes)
    for tensor in given:
        words.append(tensor.data_ptr())
        words.extend(tensor.stride())
        words.extend([0] * (AXES - tensor.ndim))
    for tensor in own:
        assert tensor is None or tensor.is_contiguous()
        words.append(0 if tensor is None else tensor.data_ptr())
    return words


def view_axes(axes: Axes) -> Axes:
    """Return the axes as a kernel sees them: weights also get a batch axis."""
    return axes if "B" in axes else ("B", *axes)


def views(axes: Axes, tensor: Tensor, batch: int) -> Sequence[Tensor]:
    """Return a kernel's views of one of the caller's tensors, with at most four axes each.

    A numeric axis, such as the gates in "T B H 3 K", is split into views. The batch axis of weights
    has stride zero.
    """
    if "B" not in axes:
        return (tensor.unsqueeze(0).expand(batch, *tensor.shape),)
    numbers = [position for position, axis in enumerate(axes) if axis.isdigit()]
    return tensor.unbind(numbers[0]) if numbers else (tensor,)
