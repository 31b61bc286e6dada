"""Tracing and transforming a call works with the C++ kernels, or is refused by name."""

import warnings

import pytest
import torch
from forks import Program
from kernel_cases import CASES, example
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from fastweights import kernels
from fastweights.kernels.lstm import fused
from fastweights.kernels.machinery.example import Example

pytestmark = pytest.mark.compiler
REFERENCE = r'kernels\.backend\("reference"\)'


@pytest.fixture(autouse=True)
def _without_warnings_of_torch():
    """Ignore tracers' warnings about the shape checks, and those of `vmap` about its loop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def small(name: str, options: dict[str, str]) -> Example:
    """Return a call whose kernels are prepared, so that a remembered call would be wrongly used."""
    case = example(name, 3, time=3, **options).to(torch.float32)
    with kernels.backend("cpu"), torch.no_grad():
        case.run()
    return case


def of_first(case: Example, backend: str):
    """Return the call as a function of its first input."""

    def run(first: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with kernels.backend(backend):
            return tuple(case.run([first, *case.tensors[1:]]))

    return run


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_traced_graph_computes_anew(name, options, gradient):
    case = small(name, options)
    run, first = of_first(case, "cpu"), case.tensors[0]
    with torch.set_grad_enabled(gradient):
        leaf = first.clone().requires_grad_(gradient)
        graphs = [make_fx(run)(leaf)]
        if not gradient:
            graphs.append(torch.jit.trace(run, leaf))
    for graph in graphs:
        assert_same(graph(0.5 * first), run(0.5 * first))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_fake_tensors_get_the_shapes(name, options, gradient):
    case = small(name, options)
    with FakeTensorMode() as mode, torch.set_grad_enabled(gradient), kernels.backend("cpu"):
        fakes = [mode.from_tensor(tensor) for tensor in case.tensors]
        found = case.run([fakes[0].requires_grad_(gradient), *fakes[1:]])
    assert [a.shape for a in found] == [b.shape for b in case.run()]
    assert found[0].requires_grad is gradient


@pytest.mark.parametrize("transform", ["grad", "jacrev", "vmap", "vmap of grad"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_transforms_of_torch_func(name, options, transform):
    case = small(name, options)
    first = case.tensors[0]
    many = torch.stack([first, 0.5 * first])

    def outcome(backend: str):
        run = of_first(case, backend)
        grad = torch.func.grad(lambda x: sum(output.square().sum() for output in run(x)))
        return {
            "grad": lambda: [grad(first)],
            "jacrev": lambda: [torch.func.jacrev(lambda x: run(x)[0][-1, 0])(first)],
            "vmap": lambda: torch.func.vmap(run)(many),
            "vmap of grad": lambda: [torch.func.vmap(grad)(many)],
        }[transform]()

    assert_same(outcome("cpu"), outcome("reference"))


def test_a_second_derivative_by_torch_func_names_the_reference():
    run = of_first(small("delta_rule", {}), "cpu")
    grad = torch.func.grad(lambda x: run(x)[0].square().sum())
    with pytest.raises(RuntimeError, match=REFERENCE):
        torch.func.grad(lambda x: grad(x).sum())(torch.rand(3, 5, 2, 3))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_forward_mode_names_the_reference(name, options, gradient):
    case = small(name, options)
    first = case.tensors[0].clone().requires_grad_(gradient)
    with torch.set_grad_enabled(gradient), forward_ad.dual_level():
        dual = forward_ad.make_dual(first, torch.ones_like(first))
        with pytest.raises(RuntimeError, match=f"{name}: .*{REFERENCE}"):
            of_first(case, "cpu")(dual)
        found = forward_ad.unpack_dual(of_first(case, "reference")(dual)[0])
        assert found.tangent is not None
        assert_same(of_first(case, "cpu")(first), of_first(case, "reference")(first))
    with pytest.raises(RuntimeError, match=REFERENCE):
        torch.func.jvp(of_first(case, "cpu"), (first,), (torch.ones_like(first),))
    with pytest.raises(RuntimeError, match=REFERENCE):
        torch.func.hessian(lambda x: of_first(case, "cpu")(x)[0].sum())(first)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_batched_gradients(name, options):
    case = small(name, options)
    leaf = case.tensors[0].clone().requires_grad_()
    y, *_ = of_first(case, "cpu")(leaf)
    grads = torch.randn(2, *y.shape)
    (found,) = torch.autograd.grad(y, leaf, grads, is_grads_batched=True, retain_graph=True)
    expected = [torch.autograd.grad(y, leaf, grad, retain_graph=True)[0] for grad in grads]
    torch.testing.assert_close(found, torch.stack(expected))


def test_the_lstm_of_gpus_is_its_reference_while_something_traces():
    """Otherwise the graph would always split at the resets of the traced call."""
    z, weights, is_first, hidden, cell = example("lstm", 3).tensors

    def run(mask: torch.Tensor) -> torch.Tensor:
        return fused.unroll(z, mask, fused.LSTMState(hidden, cell), weights)[0]

    torch.testing.assert_close(make_fx(run)(is_first)(~is_first), run(~is_first))


SYMBOLS = """
import torch
from fastweights.kernels.delta_rule import DeltaRuleState, delta_rule

def run(q, k, v, beta, is_first, weights):
    y, state = delta_rule(q, k, v, beta, is_first, DeltaRuleState(weights))
    return 2 * y, state.fast_weights

for dynamic in (None, True):
    torch.compiler.reset()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for head, time in ((4, 5), (8, 5), (8, 6), (6, 1)):
        q, k, v = torch.randn(3, time, 2, 3, head)
        rest = torch.rand(time, 2, 3), torch.rand(time, 2) < 0.3, torch.randn(2, 3, head, head)
        torch.testing.assert_close(compiled(q, k, v, *rest), run(q, k, v, *rest))
"""


def test_torch_compile_where_head_sizes_differ():
    """Dynamo makes a size symbolic when it sees a second value."""
    found = Program(SYMBOLS).end()
    assert found.returncode == 0, found.stderr
