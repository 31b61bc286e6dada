"""Stems: shapes, scale, and equality with a plain implementation of their convolutions."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fastweights.agents.stem import (
    STEMS,
    CentredConv2d,
    VectorStem,
    apply_over_time,
    build_stem,
)

SIZES = [(4, 84, 84), (3, 64, 64), (1, 20, 20), (2, 21, 33)]


def pictures(shape, count: int = 3) -> Tensor:
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8)


def weights(stem) -> list[tuple[Tensor, Tensor]]:
    """Return every layer's weight and bias, in order and contiguous."""
    parameters = [parameter.detach().contiguous() for parameter in stem.parameters()]
    return list(zip(parameters[::2], parameters[1::2], strict=True))


def plain_resnet(stem, frame: Tensor) -> Tensor:
    """Compute the stem of Espeholt et al. 2018, figure 3, right."""
    layers = iter(weights(stem))
    x = frame.double() / 255
    for _ in range(3):
        x = F.max_pool2d(F.conv2d(x, *next(layers), padding=1), 3, stride=2, padding=1)
        for _ in range(2):
            inner = F.conv2d(F.relu(x), *next(layers), padding=1)
            x = x + F.conv2d(F.relu(inner), *next(layers), padding=1)
    return F.relu(F.linear(F.relu(x).reshape(len(x), -1), *next(layers)))


def plain_shallow(stem, frame: Tensor) -> Tensor:
    """Compute the stem of Espeholt et al. 2018, figure 3, left."""
    first, second, last = weights(stem)
    x = F.relu(F.conv2d(frame.double() / 255, *first, stride=4))
    x = F.relu(F.conv2d(x, *second, stride=2))
    return F.relu(F.linear(x.reshape(len(x), -1), *last))


def plain_shallow_norm(stem, frame: Tensor, centre=lambda w: w) -> Tensor:
    """Compute `plain_shallow`, with each picture normalised to mean 0, variance 1 before a ReLU."""
    (w1, b1), norm, (w2, b2), second_norm, last, last_norm = weights(stem)
    x = F.conv2d(frame.double() / 255, centre(w1), b1, stride=4)
    x = F.relu(standard(x) * across(norm[0]) + across(norm[1]))
    x = F.conv2d(x, centre(w2), b2, stride=2)
    x = F.relu(standard(x) * across(second_norm[0]) + across(second_norm[1])).reshape(len(x), -1)
    return F.relu(standard(F.linear(x, *last)) * last_norm[0] + last_norm[1])


def plain_shallow_centred(stem, frame: Tensor) -> Tensor:
    """Compute `plain_shallow_norm` with filters whose taps sum to 0 in each input channel."""
    return plain_shallow_norm(stem, frame, lambda w: w - w.flatten(2).mean(2)[..., None, None])


def plain_shallow_soft_centred(stem, frame: Tensor) -> Tensor:
    """Compute the same with filters that keep a quarter of their taps' sums."""

    def centre(w: Tensor) -> Tensor:
        return 0.25 * w + 0.75 * (w - w.flatten(2).mean(2)[..., None, None])

    return plain_shallow_norm(stem, frame, centre)


def standard(x: Tensor) -> Tensor:
    rows = x.reshape(len(x), -1)
    rows = (rows - rows.mean(1, keepdim=True)) / (rows.var(1, False, keepdim=True) + 1e-5).sqrt()
    return rows.view_as(x)


def across(channels: Tensor) -> Tensor:
    return channels.view(-1, 1, 1)


PLAIN = {
    "resnet": plain_resnet,
    "shallow": plain_shallow,
    "shallow_norm": plain_shallow_norm,
    "shallow_centred": plain_shallow_centred,
    "shallow_soft_centred": plain_shallow_soft_centred,
}


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("name", PLAIN)
def test_image_stem_is_the_papers_figure(name, shape):
    stem, frame = build_stem(name, shape).double(), pictures(shape)
    features = stem(frame)
    assert features.shape == (3, 256)
    torch.testing.assert_close(features, PLAIN[name](stem, frame), atol=1e-10, rtol=0)


def test_a_normalised_stem_tells_pictures_apart_from_the_start():
    """Pictures that differ only in a ball get clearly different features."""
    torch.manual_seed(0)
    frame = torch.full((20, 4, 84, 84), 87, dtype=torch.uint8)
    for i in range(20):
        frame[i, :, 4 * i : 4 * i + 3, 40:43] = 236
    kinds = ("shallow", "shallow_norm", "shallow_soft_centred", "shallow_centred")
    plain, normed, soft, centred = (build_stem(name, (4, 84, 84)) for name in kinds)
    assert normed(frame).std(0).mean() > 20 * plain(frame).std(0).mean()
    assert soft(frame).std(0).mean() > 2 * normed(frame).std(0).mean()
    assert centred(frame).std(0).mean() > 2 * normed(frame).std(0).mean()
    product = normed.project.weight @ normed.project.weight.T
    torch.testing.assert_close(product, 2 * torch.eye(256), atol=1e-4, rtol=0)


def test_brightness_means_nothing_to_a_centred_stem():
    stem = build_stem("shallow_centred", (1, 84, 84)).double()
    dark = pictures((1, 84, 84)) // 2
    torch.testing.assert_close(stem(dark), stem(dark + 100), atol=1e-10, rtol=0)


@pytest.mark.parametrize("kept", [0.0, 0.25, 1.0])
def test_a_share_of_the_brightness_passes_centred_filters(kept):
    conv = CentredConv2d(2, 3, 4, 2, kept=kept).double()
    plain = torch.full((1, 2, 8, 8), 51, dtype=torch.uint8)
    expected = kept * conv.weight.sum((1, 2, 3)) * 0.2 + conv.bias
    found = conv(plain)
    torch.testing.assert_close(found, across(expected).expand_as(found), atol=1e-12, rtol=0)


def test_no_gradient_can_silence_all_of_a_normalised_stem():
    """The first filters are below 0 everywhere, as can happen to the plain stem in training."""
    frame = pictures((4, 84, 84))
    normed = dict.fromkeys(("shallow_norm", "shallow_centred", "shallow_soft_centred"), True)
    for name, alive in {"shallow": False, **normed}.items():
        stem = build_stem(name, (4, 84, 84))
        with torch.no_grad():
            stem.convolutions[0].weight.sub_(1.0)
        stem(frame).square().sum().backward()
        assert bool(stem.convolutions[0].weight.grad.abs().sum() > 0) is alive


def test_the_resnet_has_fifteen_convolutions_and_3872_features():
    stem = build_stem("resnet", (4, 84, 84))
    convolutions = [m for m in stem.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) == 15
    assert stem.project.in_features == 3872


def test_layout_in_memory_changes_nothing():
    stem, frame = build_stem("resnet", (3, 64, 64)).double(), pictures((3, 64, 64))
    last = frame.to(memory_format=torch.channels_last)
    torch.testing.assert_close(stem(last), stem(frame), atol=1e-12, rtol=0)
    contiguous = build_stem("resnet", (3, 64, 64), channels_last=False).double()
    contiguous.load_state_dict(stem.state_dict())
    assert all(weight.is_contiguous() for weight in contiguous.parameters())
    torch.testing.assert_close(contiguous(frame), stem(frame), atol=1e-12, rtol=0)


def test_gradients_reach_every_weight():
    stem = build_stem("resnet", (3, 64, 64))
    stem(pictures((3, 64, 64))).square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in stem.parameters())


def test_vector_stem():
    stem = build_stem("mlp", (4,)).double()
    pixels = torch.tensor([[0, 51, 102, 255]], dtype=torch.uint8)
    assert torch.equal(stem(pixels), stem(pixels.double() / 255))
    first, second = weights(stem)
    x = torch.randn(5, 4).double()
    expected = F.relu(F.linear(F.relu(F.linear(x, *first)), *second))
    torch.testing.assert_close(stem(x), expected, atol=1e-12, rtol=0)


def test_auto_takes_the_stem_that_fits():
    assert isinstance(build_stem("auto", (4,)), VectorStem)
    deep = build_stem("auto", (4, 84, 84))
    assert [p.shape for p in deep.parameters()] == [
        p.shape for p in build_stem("resnet", (4, 84, 84)).parameters()
    ]


def test_apply_over_time_keeps_rows_and_streams_apart():
    stem = build_stem("resnet", (1, 20, 20)).double()
    frame = pictures((1, 20, 20), 6).unflatten(0, (2, 3))
    features = apply_over_time(stem, frame)
    assert features.shape == (2, 3, 256)
    for t in range(2):
        torch.testing.assert_close(features[t], stem(frame[t]), atol=1e-12, rtol=0)


def test_unknown_stem_lists_the_known():
    with pytest.raises(ValueError, match="'vit'") as error:
        build_stem("vit", (4, 84, 84))
    assert all(name in str(error.value) for name in STEMS)


@pytest.mark.parametrize("precision", ["auto", "float16"])
def test_a_precision_must_be_chosen(precision):
    with pytest.raises(ValueError, match=f"'{precision}'.*float32.*bfloat16"):
        build_stem("resnet", (4, 84, 84), precision=precision)


@pytest.mark.parametrize(
    ("name", "shape"), [("resnet", (4,)), ("shallow", (10, 10)), ("shallow", (4, 19, 84))]
)
def test_unfit_frames_are_named_in_one_line(name, shape):
    with pytest.raises(ValueError, match=f"{name}.*images") as error:
        build_stem(name, shape)
    assert str(shape) in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith("or --preset vectors") == (len(shape) < 3)


@pytest.mark.parametrize(
    ("name", "side"),
    [("resnet", 3), *((name, 20) for name in STEMS if name.startswith("shallow"))],
)
def test_the_smallest_picture_is_enough(name, side):
    features = build_stem(name, (1, side, side))(pictures((1, side, side)))
    assert features.shape == (3, 256) and features.std(0).max() > 0


@pytest.mark.parametrize("name", ["resnet", "shallow_norm", "shallow_centred"])
def test_bfloat16_convolutions_leave_everything_else_in_float32(name):
    exact, rough = (build_stem(name, (4, 84, 84), precision=p) for p in ("float32", "bfloat16"))
    rough.load_state_dict(exact.state_dict())
    frame = pictures((4, 84, 84))
    outputs = [stem(frame) for stem in (exact, rough)]
    for stem, features in zip((exact, rough), outputs, strict=True):
        assert features.dtype is torch.float32
        features.square().sum().backward()
        assert all(p.dtype is p.grad.dtype is torch.float32 for p in stem.parameters())
    # bfloat16 keeps 8 bits; the errors of 15 layers add up to a few units of them.
    assert 0 < relative(outputs[1], outputs[0]) < 0.03
    for near, right in zip(rough.parameters(), exact.parameters(), strict=True):
        assert 0 < relative(near.grad, right.grad) < 0.1


def relative(found: Tensor, right: Tensor) -> float:
    return ((found - right).norm() / right.norm()).item()
