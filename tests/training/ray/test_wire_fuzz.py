"""Whatever arrives in place of a rollout, it is one or it is a `WireError`: nothing else."""

from functools import cache

import pytest
import torch
from fuzzing import searched
from hypothesis import strategies as st
from safetensors.torch import load, save
from test_rollout_wire import play

from fastweights.training.ray.wire import WireError, WireForm, decode, encode


@cache
def message(env: str) -> tuple[bytes, WireForm]:
    experience, form = play(env, "rdn", length=12)
    return encode(experience), form


def is_understood(content: bytes, form: WireForm) -> None:
    try:
        experience = decode(content, form, 41)
    except WireError as error:
        assert str(error) and "\n" not in str(error)
        return
    rollout = experience.collected.rollout
    assert rollout.action.shape == (form.length, form.streams)
    assert rollout.frame.shape == (form.length + 1, form.streams, *form.frame_shape)
    assert (rollout.action >= 0).all() and (rollout.action < form.num_actions).all()
    assert rollout.reward.isfinite().all() and rollout.policy_logits.isfinite().all()
    assert 0 <= experience.version <= 41


games = st.sampled_from(["Catch", "Pong"])
places = st.floats(0, 1, exclude_max=True)


def damaged(env, flips, cut, more):
    """Bytes changed (most of them in the header, which is a small part), cut off, added."""
    content, form = message(env)
    content = bytearray(content)
    header = 8 + int.from_bytes(content[:8], "little")
    for place, byte, in_header in flips:
        content[int(place * (header if in_header else len(content)))] = byte
    is_understood(bytes(content[: len(content) - int(cut * len(content))]) + more, form)


test_damaged_messages, test_damaged_messages_at_length = searched(
    damaged,
    40,
    4_000,
    games,
    st.lists(st.tuples(places, st.integers(0, 255), st.booleans()), max_size=6),
    st.one_of(st.just(0.0), places),
    st.binary(max_size=20),
)

shapes = st.lists(st.integers(0, 4), max_size=4)
types = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool])
strange = st.one_of(st.none(), st.tuples(shapes, types, st.integers(-9, 300)))


def replaced(env, changes, extra):
    """Tensors left out, or of another type and shape, in a message that is well formed."""
    content, form = message(env)
    tensors = load(content)
    for place, new in changes:
        name = sorted(tensors)[int(place * len(tensors))]
        del tensors[name]
        if new is not None:
            shape, dtype, value = new
            tensors[name] = torch.full(shape, value).to(dtype)
        if not tensors:
            break
    if extra:
        tensors[extra] = torch.zeros(1)
    is_understood(save(tensors), form)


test_wrong_tensors, test_wrong_tensors_at_length = searched(
    replaced,
    60,
    4_000,
    games,
    st.lists(st.tuples(places, strange), max_size=3),
    st.text(max_size=8),
)


@pytest.mark.parametrize("env", ["Catch", "Pong"])
def test_what_is_damaged_was_whole(env):
    is_understood(*message(env))
    decode(*message(env))
