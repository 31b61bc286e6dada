"""Stems: networks that map a frame, an image or a vector, to a feature vector.

Source of the image stems: Espeholt et al. 2018, figure 3 (left: shallow, right: the large ResNet).
The other `shallow_` stems modify the left network so that it learns from the first frames on; see
docs/design/stems.md.
"""

from collections import OrderedDict
from collections.abc import Callable
from copy import deepcopy
from math import prod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn

from fastweights.host import one_of
from fastweights.kernels import backend
from fastweights.kernels.pictures import as_numbers
from fastweights.kernels.pictures.convolve_pool import convolve_pool
from fastweights.kernels.pictures.residual_unit import residual_unit


class ResidualUnit(nn.Module):
    """The unit x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Float[Tensor, "N C Y X"]) -> Float[Tensor, "N C Y X"]:
        """Apply the unit; the shape stays the same."""
        first, second = self.first, self.second
        return residual_unit(x, first.weight, first.bias, second.weight, second.bias)


class PooledConv2d(nn.Conv2d):
    """A 3 x 3 convolution, followed by max-pooling over 3 x 3 windows with stride 2."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, 3, padding=1)

    def forward(self, x: Shaped[Tensor, "N C Y X"]) -> Float[Tensor, "N D V U"]:
        """Convolve and pool; height and width are halved, rounded up."""
        return convolve_pool(x, _scaled(self.weight, x), self.bias)


class PixelConv2d(nn.Conv2d):
    """A convolution on uint8 pixels."""

    def forward(self, x: UInt8[Tensor, "N C Y X"]) -> Float[Tensor, "N D V U"]:
        """Convolve pixels as if they were scaled to [0, 1]."""
        return self._conv_forward(as_numbers(x, self.weight), _scaled(self.weight, x), self.bias)


class CentredConv2d(nn.Conv2d):
    """A convolution without padding whose filters are centred, wholly or partly, per input channel.

    Each call subtracts the mean over the taps, except for a fraction `kept`. If nothing is kept, a
    channel that is constant over the picture has no effect, so brightness does not matter. Source:
    Huang et al. 2017, "Centered Weight Normalization in Accelerating Training of Deep Neural
    Networks", by channel and without the scale.

    Args:
        inputs: channels of the input.
        outputs: number of filters.
        size: height and width of the filters.
        stride: stride of the filters.
        kept: fraction of the mean that is kept, from 0 to 1.
    """

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, *, kept: float = 0.0):
        super().__init__(inputs, outputs, size, stride)
        self.subtracted = 1 - kept

    def forward(self, x: Shaped[Tensor, "N C Y X"]) -> Float[Tensor, "N D V U"]:
        """Convolve features, or uint8 pixels as if they were scaled to [0, 1]."""
        centred = self.weight - self.subtracted * self.weight.mean((2, 3), keepdim=True)
        if x.dtype is not torch.uint8:
            return self._conv_forward(x, centred, self.bias)
        return self._conv_forward(as_numbers(x, self.weight), _scaled(centred, x), self.bias)


def _scaled(weight: Tensor, x: Tensor) -> Tensor:
    """Scale weights by 1/255 for uint8 input; return them unchanged for floating-point input.

    Integers up to 255 are exact in bfloat16; fractions are not.
    """
    return weight / 255 if x.dtype is torch.uint8 else weight


def _stage(convolution: PooledConv2d) -> nn.Sequential:
    """Return a stage: a convolution with pooling to half the size, then two residual units.

    Checkpoints number the layers as if pooling were a separate layer 1, as it once was.
    """
    units = (ResidualUnit(convolution.out_channels) for _ in range(2))
    return nn.Sequential(OrderedDict(zip("023", (convolution, *units), strict=True)))


def _resnet(channels: int) -> nn.Sequential:
    return nn.Sequential(
        _stage(PooledConv2d(channels, 16)),
        _stage(PooledConv2d(16, 32)),
        _stage(PooledConv2d(32, 32)),
    )


_FIRST, _SECOND = (16, 8, 4), (32, 4, 2)  # filters, size and stride of the small stem's layers


def _shallow(channels: int) -> nn.Sequential:
    first, second = PixelConv2d(channels, *_FIRST), nn.Conv2d(16, *_SECOND)
    return nn.Sequential(first, nn.ReLU(inplace=True), second)


def _shallow_norm(channels: int) -> nn.Sequential:
    """Return two convolutions, normalised over each picture before every ReLU.

    After normalisation, a ReLU cannot be zero on the whole picture.
    """
    return _normalized(PixelConv2d(channels, *_FIRST), nn.Conv2d(16, *_SECOND))


def _shallow_centred(channels: int, kept: float = 0.0) -> nn.Sequential:
    """Return the same with centred filters: a uniform background is 0 before each norm."""
    first, second = (channels, *_FIRST), (16, *_SECOND)
    return _normalized(CentredConv2d(*first, kept=kept), CentredConv2d(*second, kept=kept))


def _shallow_soft_centred(channels: int) -> nn.Sequential:
    """Return the same with a quarter of each mean kept, so that brightness matters a little."""
    return _shallow_centred(channels, kept=0.25)


def _normalized(first: nn.Conv2d, second: nn.Conv2d) -> nn.Sequential:
    norms = (nn.GroupNorm(1, convolution.out_channels) for convolution in (first, second))
    return nn.Sequential(first, next(norms), nn.ReLU(inplace=True), second, next(norms))


def _draw_orthogonal(module: nn.Module) -> None:
    """Draw weights that preserve the size of differences between pictures through a ReLU.

    PyTorch's initial weights shrink it by a factor of two to three per layer. Biases start at 0.
    """
    if isinstance(module, nn.Conv2d | nn.Linear):
        drawn = nn.init.orthogonal_(
            torch.empty(module.weight.shape), nn.init.calculate_gain("relu")
        )
        with torch.no_grad():
            module.weight.copy_(drawn)  # keeps the memory layout
            module.bias.zero_()


class ImageStem(nn.Module):
    """Convolutions and one fully connected layer on uint8 pictures scaled to [0, 1].

    Parameters and features are float32 (or float64 after `.double()`).

    Args:
        frame_shape: (C, Y, X).
        convolutions: the convolutions, without the ReLU after the last one.
        output_size: F.
        in_bfloat16: compute the convolutions in bfloat16, with sums in float32.
        channels_last: keep channels last in memory, the fastest layout on CPUs and GPUs.
        normalized: normalise features before their ReLU, and draw all weights orthogonal.
    """

    def __init__(
        self,
        frame_shape: tuple[int, ...],
        convolutions: nn.Sequential,
        output_size: int,
        in_bfloat16: bool = False,
        channels_last: bool = True,
        normalized: bool = False,
    ):
        super().__init__()
        self.output_size, self.in_bfloat16 = output_size, in_bfloat16
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.convolutions = convolutions.to(memory_format=layout)
        self.project = nn.Linear(_features(convolutions, frame_shape), output_size)
        self.norm = nn.LayerNorm(output_size) if normalized else nn.Identity()
        if normalized:
            self.apply(_draw_orthogonal)

    def forward(self, frame: UInt8[Tensor, "N C Y X"]) -> Float[Tensor, "N F"]:
        """Return features [N, F] of pictures."""
        with torch.autocast(frame.device.type, torch.bfloat16, enabled=self.in_bfloat16):
            # The ReLU comes last, in the gradient's memory layout: faster than strided.
            features = F.relu(self.convolutions(frame).flatten(1))
        return F.relu(self.norm(self.project(features.to(self.project.weight.dtype))))


@torch.no_grad()
def _features(convolutions: nn.Sequential, frame_shape: tuple[int, ...]) -> int:
    """Return the number of outputs for one picture.

    Convolutions without data (on the device "meta") run on the CPU, because operations on "meta"
    load PyTorch's compiler, which takes as long as all other imports of a command.
    """
    device = next(convolutions.parameters()).device
    if device.type == "meta":
        device = torch.device("cpu")
        convolutions = deepcopy(convolutions).to_empty(device=device)
    with backend("reference"):  # a shape needs no compiled kernel
        picture = torch.zeros(1, *frame_shape, dtype=torch.uint8, device=device)
        return convolutions(picture).flatten(1).shape[-1]


class VectorStem(nn.Module):
    """Two fully connected layers on vectors; bytes are treated as scaled to [0, 1]."""

    def __init__(self, frame_shape: tuple[int, ...], output_size: int):
        super().__init__()
        self.output_size = output_size
        self.layers = nn.Sequential(
            nn.Linear(prod(frame_shape), output_size),
            nn.ReLU(),
            nn.Linear(output_size, output_size),
            nn.ReLU(),
        )

    def forward(self, frame: Shaped[Tensor, " N *frame"]) -> Float[Tensor, "N F"]:
        """Return features [N, F] of frames, which are flattened."""
        x = frame.flatten(1).to(self.layers[0].weight.dtype)
        return self.layers(x / 255 if frame.dtype is torch.uint8 else x)


class _Kind(NamedTuple):
    """An image stem."""

    convolutions: Callable[[int], nn.Sequential]
    smallest_side: int  # pixels
    normalized: bool = False


_OF_PICTURES = {
    "resnet": _Kind(_resnet, 3),
    "shallow": _Kind(_shallow, 20),
    "shallow_norm": _Kind(_shallow_norm, 20, normalized=True),
    "shallow_centred": _Kind(_shallow_centred, 20, normalized=True),
    "shallow_soft_centred": _Kind(_shallow_soft_centred, 20, normalized=True),
}
STEMS = ("auto", *_OF_PICTURES, "mlp")


def build_stem(
    name: str,
    frame_shape: tuple[int, ...],
    output_size: int = 256,
    precision: str = "float32",
    channels_last: bool = True,
) -> nn.Module:
    """Build a stem for frames of this shape; `auto` takes resnet for images and mlp for vectors.

    Args:
        name: `resnet` (15 convolutions in three stages of 16, 32, 32 channels), `shallow` (two
            convolutions), `shallow_norm` (the same, each layer normalised and drawn orthogonal),
            `shallow_centred` (`shallow_norm` with filters that sum to 0) or `shallow_soft_centred`
            (a quarter of their sums kept) for uint8 pictures; `mlp` for vectors and small pictures;
            or `auto`.
        frame_shape: (C, Y, X) of pictures, or (N,) of vectors.
        output_size: number of features.
        precision: float32 or bfloat16, of the convolutions only.
        channels_last: memory layout of the convolutions' weights and outputs.

    Raises:
        ValueError: an unknown stem or precision, or a stem that does not accept such frames.
    """
    one_of("stem", name, STEMS)
    is_image = len(frame_shape) == 3
    if name == "auto":
        name = "resnet" if is_image else "mlp"
    if name == "mlp":
        return VectorStem(frame_shape, output_size)
    kind = _OF_PICTURES[name]
    if not is_image or min(frame_shape[1:]) < kind.smallest_side:
        least, instead = kind.smallest_side, "" if is_image else ", or --preset vectors"
        raise ValueError(
            f"stem {name!r} needs images (channels, height, width) of at least {least} x {least} "
            f"pixels; this environment's frames have shape {tuple(frame_shape)}; use --stem mlp"
            f"{instead}"
        )
    one_of("precision", precision, ("float32", "bfloat16"))
    convolutions, in_bfloat16 = kind.convolutions(frame_shape[0]), precision == "bfloat16"
    how = (output_size, in_bfloat16, channels_last, kind.normalized)
    return ImageStem(frame_shape, convolutions, *how)


def apply_over_time(stem: nn.Module, frame: Shaped[Tensor, "T B *frame"]) -> Float[Tensor, "T B F"]:
    """Run a stem on every frame of an unroll."""
    return stem(frame.flatten(0, 1)).unflatten(0, frame.shape[:2])
