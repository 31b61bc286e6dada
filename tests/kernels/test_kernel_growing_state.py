"""All gradients when the state grows, as with the delta rule and keys that are not normalised.

The C++ backward passes go back in time from the last state. If the last state is many times as
large as the first, subtracting the writes one by one loses the first state, and so the gradients,
in the last state's rounding (kernels/include/replay.h). The gradients must be as good as those of
the reference in float32 for any state; the test measures the reference's error, too.
"""

import pytest
import torch
from kernel_cases import all_resets, by_threads, with_neighbours
from torch import Tensor

from fastweights import kernels
from fastweights.cores import build_core
from fastweights.kernels.machinery import cpu_call
from fastweights.kernels.machinery.example import Example, make
from fastweights.kernels.registry import OPERATIONS

NAMES = ("recurrent_delta_rule", "delta_rnn", "delta_lstm", "self_referential")
KEYS = ("k", "recurrent_k")  # two operations get keys as inputs, the others map them inside
MAPS = {
    "elu": lambda x: torch.nn.functional.elu(x) + 1,
    "identity": lambda x: x,
}
FLOAT = torch.float32
GROWN = 1e4  # the beginning of a smaller state is not lost
TIMES_REFERENCE, AT_LEAST = 10, 2e-5  # allowed error of the gradients
HOPELESS = 1e-2  # above this error, the reference in float32 is no measure

pytestmark = pytest.mark.compiler


@pytest.fixture(autouse=True)
def _outputs_start_as_nan(monkeypatch):
    fresh = torch.empty_like
    monkeypatch.setattr(cpu_call, "allocate_like", lambda like: fresh(like).fill_(float("nan")))


def growing(
    name: str,
    feature_map: str,
    time: int,
    size: int = 8,
    is_first: Tensor | None = None,
    scale: float = 1.0,
    state: float = 0.0,
    seed: int = 0,
) -> Example:
    """Return a float32 call with a growing state.

    Keys are `feature_map` of normal numbers times `scale`; the first state is multiplied by
    `state`.
    """
    has_map = name in ("recurrent_delta_rule", "self_referential")
    options = {"feature_map": feature_map} if has_map else {}
    batch = is_first.shape[1] if is_first is not None else 2
    sizes = {"T": time, "B": batch, "H": 2, "K": size, "V": size, "D": size}
    case = make(OPERATIONS[name], sizes, is_first, seed=seed, **options)
    generator = torch.Generator().manual_seed(seed + 1)
    tensors = []
    for argument, tensor in zip(case.operation.signature.arguments, case.tensors, strict=True):
        if argument.name in KEYS:
            normal = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            tensor = normal * scale if has_map else MAPS[feature_map](normal * scale)
        elif argument.name == "x":
            tensor = tensor * scale
        elif argument.name.startswith("state."):
            tensor = tensor * state
        tensors.append(tensor)
    return Example(case.operation, tensors, case.options).to(torch.float32)


def by_backend(case: Example, backend: str, dtype: torch.dtype) -> dict[str, Tensor]:
    with kernels.backend(backend):
        return case.to(dtype).run_with_gradients()


def off(found: Tensor, right: Tensor) -> float:
    """Return the largest error relative to the largest entry; infinite for NaN."""
    error = (found.double() - right).abs().max() / right.abs().max().clamp_min(1e-30)
    return error.nan_to_num(nan=float("inf")).item()


def largest(found: dict[str, Tensor]) -> float:
    return max(t.abs().max().item() for name, t in found.items() if name.startswith("final"))


def worst(found: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    return max(off(found[name], expected) for name, expected in right.items())


def assert_as_good_as_the_reference(cases: list[Example]) -> float:
    """Check all cases that float32 can compute; return the size of the largest state."""
    errors, unavoidable, grown = [], [], []
    for case in cases:
        near = with_neighbours(case, number=max(1, 4 // len(cases)))
        truths = [by_backend(each, "reference", torch.float64) for each in near]
        found = [by_backend(each, "reference", torch.float32) for each in near]
        right, single = truths[0], max(map(worst, found, truths))
        if single > HOPELESS:
            continue
        unavoidable.append(single)
        grown.append(largest(right))
        errors.append(worst(by_backend(case, "cpu", torch.float32), right))
    assert errors, "the reference can compute none of the cases in float32, so nothing is checked"
    assert max(errors) <= max(TIMES_REFERENCE * max(unavoidable), AT_LEAST), (errors, unavoidable)
    return max(grown)


# Numbers of steps and scales of keys: the state grows, and float32 can still compute it.
GROWTH = {
    ("recurrent_delta_rule", "elu"): [(5, 1.5), (10, 1.0), (20, 0.5)],
    ("recurrent_delta_rule", "identity"): [(5, 2.0), (10, 1.5), (20, 1.0)],
    ("delta_rnn", "elu"): [(5, 1.5), (10, 1.0), (20, 0.5)],
    ("delta_rnn", "identity"): [(10, 2.0), (50, 1.0), (200, 0.8)],
    ("delta_lstm", "elu"): [(5, 1.5), (10, 1.0), (20, 0.5)],
    ("delta_lstm", "identity"): [(10, 2.0), (50, 1.0), (200, 0.7)],
    ("self_referential", "elu"): [(4, 1.5), (5, 1.2), (6, 1.0)],
    ("self_referential", "identity"): [(3, 2.0), (4, 1.5), (6, 1.0)],
}
LONG = 200  # steps, of which the reference takes seconds
LENGTHS = [(*which, *each) for which, lengths in GROWTH.items() for each in lengths]


@pytest.mark.parametrize(("name", "feature_map", "time", "scale"), LENGTHS)
def test_gradients_of_a_growing_state(name, feature_map, time, scale):
    seeds = range(4 if time < LONG else 2)
    cases = [growing(name, feature_map, time, scale=scale, seed=seed) for seed in seeds]
    assert assert_as_good_as_the_reference(cases) > GROWN


@pytest.mark.parametrize(("name", "feature_map"), GROWTH)
def test_resets_and_initial_states(name, feature_map):
    """Segments start from zero and from a given state; states grow in some and not in others."""
    time, scale = GROWTH[name, feature_map][1]
    is_first = all_resets(time)
    cases = [
        growing(name, feature_map, time, size, is_first, scale * part, state=0.1, seed=seed)
        for size, part in ((5, 1.0), (17, 0.7))
        for seed in range(2)
    ]
    assert assert_as_good_as_the_reference(cases) > GROWN


@pytest.mark.parametrize("seed", [27, 47, 49])
def test_long_keys_magnify_the_rounding_of_a_fresh_state(seed):
    """Keys of 32 numbers, each elu(x) + 1, are about 8 long."""
    options = {"feature_map": "elu", "strength_map": "double_sigmoid"}
    sizes = {"T": 2, "B": 2, "H": 1, "K": 32, "V": 3}
    case = make(OPERATIONS["recurrent_delta_rule"], sizes, seed=seed, **options)
    for tensor in case.tensors[-2:]:
        tensor.zero_()
    right = by_backend(case, "reference", torch.float64)
    assert worst(by_backend(case, "cpu", FLOAT), right) <= AT_LEAST


def test_a_state_that_grows_and_shrinks_again():
    """The last state is small and does not reveal that precision was lost on the way."""
    time = 12
    case = growing("delta_rnn", "identity", time)
    for argument, tensor in zip(case.operation.signature.arguments, case.tensors, strict=True):
        if argument.name in ("v", "recurrent_v"):
            tensor[time // 2] *= 1e3
        if argument.name in ("k", "recurrent_k"):  # a single key, whose value is replaced
            tensor[:] = 0
            tensor[..., 0] = 1
        if argument.name in ("beta", "recurrent_beta"):
            tensor[time // 2 :] = 1
    assert_as_good_as_the_reference([case])
    right = by_backend(case, "reference", torch.float64)
    assert largest(right) < 10
    assert right["y"].abs().max() > 100


@pytest.mark.parametrize("name", NAMES)
def test_neighbours_of_a_head_that_grows_keep_their_bits(name):
    """Replaying is decided separately for each head of each stream."""
    time, scale = GROWTH[name, "elu"][1]
    calm = growing(name, "elu", time, scale=0.1)
    mixed = growing(name, "elu", time, scale=0.1)
    wild = growing(name, "elu", time, scale=scale)
    for argument, tensor, other in zip(
        calm.operation.signature.arguments, mixed.tensors, wild.tensors, strict=True
    ):
        if argument.axes[:2] == ("T", "B") and argument.name != "is_first":
            tensor[:, 1] = other[:, 1]
    both = by_backend(mixed, "cpu", torch.float32), by_backend(calm, "cpu", torch.float32)
    for argument in calm.operation.signature.arguments:
        if argument.axes[:2] == ("T", "B") and argument.name != "is_first":
            found, alone = (grads[f"grad {argument.name}"] for grads in both)
            assert torch.equal(found[:, 0], alone[:, 0]), argument.name
            assert not torch.equal(found[:, 1], alone[:, 1]), argument.name
    assert_as_good_as_the_reference([mixed])


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_for_any_number_of_threads(name):
    time, scale = GROWTH[name, "elu"][1]
    case = growing(name, "elu", time, size=32, scale=scale / 2)
    one, two = by_threads(lambda: by_backend(case, "cpu", torch.float32), (1, 2))
    for tensor in one:
        assert torch.equal(one[tensor], two[tensor]), tensor


def test_the_gradient_of_a_maze_run():
    """The case is a Delta LSTM with `--core-heads 16 --core-feature-map elu`."""
    torch.manual_seed(1)
    core = build_core("delta_lstm", 256, feature_map="elu", heads=16)
    x = torch.randn(20, 2, 256)
    is_first = torch.rand(20, 2) < 0.2

    def gradient(backend: str) -> Tensor:
        with kernels.backend(backend):
            y, _ = core.unroll(x, core.initial_state(2), is_first)
            found = torch.autograd.grad(y.square().sum(), [*core.parameters()])
        return torch.cat([each.flatten() for each in found]).double()

    found, right = gradient("cpu"), gradient("reference")
    assert torch.nn.functional.cosine_similarity(found, right, 0) > 0.9999
    assert 0.99 < found.norm() / right.norm() < 1.01


def test_a_last_write_beyond_all_numbers_has_no_gradient():
    """The case is a self-referential matrix with finite outputs and an infinite final state."""
    torch.manual_seed(0)
    core = build_core("srwm", 64, layers=1, width=128, heads=8, feature_map="elu")
    x = torch.randn(10, 4, 64)

    def gradient(backend: str, dtype: torch.dtype) -> Tensor:
        with kernels.backend(backend):
            y, state = core.to(dtype)(x.to(dtype))
            weight = torch.linspace(-1, 1, y.numel(), dtype=dtype).reshape(y.shape)
            found = torch.autograd.grad((y * weight).sum(), [*core.parameters()])
        assert y.isfinite().all() and state[0][0].isfinite().all() == (dtype != FLOAT)
        return torch.cat([each.flatten() for each in found]).double()

    right = gradient("reference", torch.float64)
    limit = TIMES_REFERENCE * off(gradient("reference", FLOAT), right)
    assert limit < HOPELESS and off(gradient("cpu", FLOAT), right) < limit
