"""How a kernel's arguments are laid out: one struct of eight-byte words.

A kernel takes one struct: first `Sizes`, then the caller's tensors (`View`, `Flags`:
an address and four strides, any layout), then our own contiguous tensors (an address each).
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

HEAD_SIZES = (8, 16, 32, 64)  # what a kernel is compiled for; sizes between are padded
AXES = 4


class Sizes(NamedTuple):
    time: int
    batch: int
    heads: int
    keys: int
    values: int
    option: int = 0  # what a kernel makes of it: the version of a Delta RNN


def padded(size: int) -> int:
    """The smallest compiled head size that holds `size`."""
    return next(compiled for compiled in HEAD_SIZES if size <= compiled)


def pack(sizes: Sizes, given: Sequence[Tensor], own: Sequence[Tensor | None]) -> array:
    """The argument struct's words; `given` and `own` in the order of the struct's fields.

    None is a null address: a result that nobody wants.
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


def fresh(*like: Tensor) -> tuple[Tensor, ...]:
    """Contiguous tensors of the same shapes, not yet written."""
    return tuple(tensor.new_empty(tensor.shape) for tensor in like)


def per_head(weights: Tensor, batch: int) -> Tensor:
    """Weights [H, ...] as a view [B, H, ...], with a stride of zero over the batch."""
    return weights.unsqueeze(0).expand(batch, *weights.shape)
