"""The CUDA kernels as a backend of the operations: when they run, and warnings when not."""

import logging
from collections.abc import Iterator

import pytest
import torch
from cuda_cases import BATCH, RESETS
from delta_product_cases import DELTA_PRODUCTS, check_delta_product
from remembered import forget_calls

from fastweights import kernels
from fastweights.kernels.cuda import backend as cuda_backend
from fastweights.kernels.cuda import compiler, launch, support
from fastweights.kernels.feature_maps import FEATURE_MAPS
from fastweights.kernels.machinery import dispatch
from fastweights.kernels.machinery.example import Example, make
from fastweights.kernels.registry import OPERATIONS

WITH_KERNELS = [
    name
    for name, operation in OPERATIONS.items()
    if isinstance(operation.backends.get("cuda"), cuda_backend.Cuda)
]
MAPS_OF = {"recurrent_delta_rule": "'softmax', 'unit'", "self_referential": "'softmax'"}
WITHOUT_A_KERNEL = [("delta_lstm", {"version": version}, "version 'D'") for version in "ABC"] + [
    (name, {"feature_map": feature_map}, f"feature_map {has}")
    for name, has in MAPS_OF.items()
    for feature_map in FEATURE_MAPS
    if repr(feature_map) not in has
]
OPTION_CASES = pytest.mark.parametrize(
    ("name", "options", "has"),
    WITHOUT_A_KERNEL,
    ids=["-".join([name, *options.values()]) for name, options, _ in WITHOUT_A_KERNEL],
)
SIZES = dict.fromkeys(("T", "B", "H", "K", "V", "D"), 3)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend that there is a GPU; forget which warnings have been printed."""
    monkeypatch.setattr(support, "unavailable", lambda device=None: None)
    monkeypatch.setattr(launch, "load", lambda *kernel: None)
    forget()
    yield
    forget()


def forget() -> None:
    """Forget everything that a process looks up once."""
    for found_once in (dispatch.say_once, launch.why_not_loaded):
        found_once.cache_clear()
    forget_calls()


@pytest.fixture
def kernels_on_cpu(shim, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let CPU tensors use the CUDA backend, whose sources run under the shim."""
    monkeypatch.setattr(cuda_backend, "why_not", lambda *call: None)
    monkeypatch.setattr(launch, "load", lambda *kernel: None)
    library = torch.library.Library("fastweights", "IMPL")
    for name in WITH_KERNELS:
        pair = OPERATIONS[name].backends["cuda"].kernel
        for operator, way in ((f"{name}_cuda", "forward"), (f"{name}_cuda_backward", "backward")):
            function = getattr(pair, way)
            library.impl(operator, lambda *call, f=function: tuple(f(*call)), "CPU")
    forget()
    yield
    library._destroy()
    forget()


def chosen(name: str, **options: str) -> str:
    """Return the name of the backend for tensors on a GPU, with the same remembered sizes."""
    operation = OPERATIONS[name]
    tensors = make(operation, SIZES).to(torch.float32).tensors
    sizes = operation.signature.check(tensors)
    values = {**operation.signature.options, **options}.values()
    with torch._subclasses.FakeTensorMode():
        state = torch.empty(tensors[-1].shape, device="cuda")
        return operation._choose_once(state, sizes, list(values))


def test_every_operation_with_a_source_has_the_backend():
    sources = {path.parent.name for path in compiler.KERNELS.rglob("cuda.cu")}
    assert sources == {*WITH_KERNELS, "max_pool"}  # no recurrence; see test_cuda_max_pool.py


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_an_operation_runs_the_sources_with_all_gradients(kernels_on_cpu, name):
    """Dispatch, operator and autograd run as on a GPU; only the launch is replaced."""
    mask = torch.tensor([[False, True], [False, False], [True, False], [False, False]])
    case = make(OPERATIONS[name], SIZES | {"T": 4, "B": 2}, mask)
    with kernels.backend("reference"):
        expected = case.run_with_gradients()
    single = case.to(torch.float32)
    with kernels.backend("cuda"):
        found = single.run_with_gradients()
        with torch.no_grad():
            acting = single.run()
    for tensor, (result, right) in zip(acting, expected.items(), strict=False):
        assert torch.equal(tensor, found[result])
        assert right.abs().max() > 0
    assert_gradients_of_y_alone(case)
    for result, right in expected.items():
        scale = right.abs().max().clamp_min(1.0)
        assert ((found[result] - right).abs() / scale).max() <= 1e-5, result


@pytest.mark.parametrize("resets", RESETS)
@pytest.mark.parametrize("name", DELTA_PRODUCTS)
def test_several_writes_a_step_run_the_delta_rules_sources(kernels_on_cpu, name, resets):
    check_delta_product(name, 5, 2, 4, 3, RESETS[resets](5, BATCH))
    check_delta_product(name, 1, 3, 1, 1, RESETS[resets](1, BATCH))


def assert_gradients_of_y_alone(case: Example) -> None:
    """Training does not use the last state of an unroll."""
    found = []
    for backend, one in (("reference", case), ("cuda", case.to(torch.float32))):
        leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in one.tensors]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        with kernels.backend(backend):
            found.append(one.gradients(one.run(leaves)[:1], wanted))
    for right, gradient in zip(*found, strict=True):
        assert ((gradient - right).abs() / right.abs().max().clamp_min(1.0)).max() <= 1e-5


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_tensors_on_a_gpu_take_the_kernel(gpu, name, caplog):
    with caplog.at_level(logging.WARNING, "fastweights"):
        assert chosen(name) == "cuda"
    assert not caplog.records


@OPTION_CASES
def test_an_option_without_a_kernel_falls_to_the_next_backend(gpu, name, options, has, caplog):
    """This also holds if the same sizes were used with another option; one warning is printed."""
    with caplog.at_level(logging.WARNING, "fastweights"):
        assert [chosen(name), chosen(name, **options), chosen(name)] == [
            "cuda",
            "reference",
            "cuda",
        ]
        assert chosen(name, **options) == "reference"
    (value,) = options.values()
    assert [record.message for record in caplog.records] == [
        f"{name} runs on the slower reference backend: the CUDA kernel has {has}, not {value!r}"
    ]


@OPTION_CASES
def test_a_forced_backend_refuses_an_option_without_a_kernel(gpu, name, options, has):
    (value,) = options.values()
    reason = f"{name} cannot run on the cuda backend: the CUDA kernel has {has}, not {value!r}"
    with kernels.backend("cuda"), pytest.raises(ValueError, match=f"^{reason}$"):
        chosen(name, **options)


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_a_kernel_is_loaded_forward_and_backward_when_it_is_chosen(gpu, name, monkeypatch):
    loaded = []
    monkeypatch.setattr(launch, "load", lambda *call: loaded.append(call))
    assert [chosen(name), chosen(name)] == ["cuda", "cuda"]
    assert [(kernel.symbol, head_size) for kernel, head_size, _ in loaded] == [
        (f"{name}_forward", 8),
        (f"{name}_backward", 8),
    ]


def test_a_kernel_that_cannot_be_loaded_leaves_the_call_to_others(gpu, monkeypatch, caplog):
    """The driver may be older than the compiler, or may not know the GPU."""

    def load(*kernel):
        raise RuntimeError("CUDA_ERROR_UNSUPPORTED_PTX_VERSION: too new\nand more")

    monkeypatch.setattr(launch, "load", load)
    problem = "its kernels cannot be loaded: CUDA_ERROR_UNSUPPORTED_PTX_VERSION: too new"
    with caplog.at_level(logging.WARNING, "fastweights"):
        assert [chosen("delta_rnn"), chosen("delta_rnn")] == ["reference", "reference"]
    assert [record.message for record in caplog.records] == [
        f"delta_rnn runs on the slower reference backend: {problem}"
    ]
    with kernels.backend("cuda"), pytest.raises(ValueError, match=f"cuda backend: {problem}$"):
        chosen("delta_rnn")


def test_tensors_on_a_gpu_are_never_silently_slow(monkeypatch, caplog):
    monkeypatch.setattr(support, "unavailable", lambda device=None: "cuda.core not installed")
    forget_calls()
    dispatch.say_once.cache_clear()
    with caplog.at_level(logging.WARNING, "fastweights"):
        assert {chosen(name) for name in WITH_KERNELS} == {"reference"}
    assert sorted(record.message for record in caplog.records) == sorted(
        f"{name} runs on the slower reference backend: cuda.core not installed"
        for name in WITH_KERNELS
    )
    forget_calls()


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_forcing_it_without_a_gpu_is_one_line(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    case = make(OPERATIONS[name], SIZES)
    message = "the tensors are on cpu, and torch sees no CUDA device$"
    with kernels.backend("cuda"), pytest.raises(ValueError, match=message):
        case.run()


def test_an_unknown_option_is_refused_by_every_backend():
    for name in ("auto", *OPERATIONS["delta_lstm"].backends):
        case = make(OPERATIONS["delta_lstm"], SIZES, version="E")
        with kernels.backend(name), pytest.raises(ValueError, match="'E', known: A, B, C, D"):
            case.run()
