"""Vision and other stems: a frame in, a feature vector out.

Source of both image stems: Espeholt et al. 2018, figure 3 (left: shallow, right: the large ResNet).
"""

from math import prod

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn


class ResidualUnit(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Float[Tensor, "N C Y X"]) -> Float[Tensor, "N C Y X"]:
        return x + self.second(F.relu(self.first(F.relu(x))))


def _stage(channels_in: int, channels: int) -> nn.Sequential:
    """Convolve, halve the picture, two residual units: five convolutions."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, 3, padding=1),
        nn.MaxPool2d(3, stride=2, padding=1),
        ResidualUnit(channels),
        ResidualUnit(channels),
    )


def _resnet(channels: int) -> nn.Sequential:
    return nn.Sequential(_stage(channels, 16), _stage(16, 32), _stage(32, 32), nn.ReLU())


def _shallow(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
    )


class ImageStem(nn.Module):
    """Convolutions and one fully connected layer over uint8 pictures scaled to [0, 1]."""

    def __init__(self, frame_shape: tuple[int, ...], convolutions: nn.Sequential, output_size: int):
        super().__init__()
        self.output_size = output_size
        # In memory, channels come last: the layout that convolutions on CPUs and GPUs are fast in.
        self.convolutions = convolutions.to(memory_format=torch.channels_last)
        with torch.no_grad():
            features = convolutions(torch.zeros(1, *frame_shape)).flatten(1).shape[-1]
        self.project = nn.Linear(features, output_size)

    def forward(self, frame: UInt8[Tensor, "N C Y X"]) -> Float[Tensor, "N F"]:
        dtype = self.project.weight.dtype
        picture = frame.to(dtype, memory_format=torch.channels_last) / 255
        return F.relu(self.project(self.convolutions(picture).flatten(1)))


class VectorStem(nn.Module):
    """Two fully connected layers over vector observations."""

    def __init__(self, frame_shape: tuple[int, ...], output_size: int):
        super().__init__()
        self.output_size = output_size
        self.layers = nn.Sequential(
            nn.Linear(prod(frame_shape), output_size),
            nn.ReLU(),
            nn.Linear(output_size, output_size),
            nn.ReLU(),
        )

    def forward(self, frame: Float[Tensor, " N *frame"]) -> Float[Tensor, "N F"]:
        return self.layers(frame.flatten(1).to(self.layers[0].weight.dtype))


STEMS = ("auto", "resnet", "shallow", "mlp")
_SMALLEST_SIDE = {"resnet": 3, "shallow": 20}  # pixels


def build_stem(name: str, frame_shape: tuple[int, ...], output_size: int = 256) -> nn.Module:
    """Builds a stem for frames of this shape; `auto` takes resnet for images and mlp for vectors.

    `resnet`: 15 convolutions in three stages of 16, 32, 32 channels; `shallow`: two convolutions;
    both for uint8 pictures (C, Y, X). `mlp`: for float vectors. Raises `ValueError` for an unknown
    stem or one that does not take such frames.
    """
    if name not in STEMS:
        raise ValueError(f"unknown stem {name!r}; known: {', '.join(STEMS)}")
    is_image = len(frame_shape) == 3
    if name == "auto":
        name = "resnet" if is_image else "mlp"
    if name == "mlp":
        return VectorStem(frame_shape, output_size)
    if not is_image or min(frame_shape[1:]) < _SMALLEST_SIDE[name]:
        least = _SMALLEST_SIDE[name]
        raise ValueError(
            f"stem {name!r} needs pictures (channels, height, width) of at least {least} x {least} "
            f"pixels; this environment's frames have shape {tuple(frame_shape)}; use --stem mlp"
        )
    build = _resnet if name == "resnet" else _shallow
    return ImageStem(frame_shape, build(frame_shape[0]), output_size)


def apply_over_time(stem: nn.Module, frame: Shaped[Tensor, "T B *frame"]) -> Float[Tensor, "T B F"]:
    """Runs a stem on every frame of an unroll."""
    return stem(frame.flatten(0, 1)).unflatten(0, frame.shape[:2])
