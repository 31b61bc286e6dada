"""The C++ kernels with torch's features: operators, compile, autocast, half precision."""

import pytest
import torch
from forks import Program
from kernel_cases import CASES, assert_agree, by_threads, example, truth

from fastweights import kernels
from fastweights.kernels.machinery.example import make
from fastweights.kernels.registry import OPERATIONS


@pytest.mark.compiler
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_the_operator_is_well_formed_and_traces_with_dynamic_shapes(name):
    case = example(name, 3, time=2).to(torch.float32)
    tensors = [t.requires_grad_(t.is_floating_point()) for t in case.tensors]
    operator = getattr(torch.ops.fastweights, f"{name}_cpu").default
    torch.library.opcheck(operator, (*tensors, *case.operation.signature.options.values()))


MODEL = """
import torch
import kernels
from fastweights.kernels.delta_rule import DeltaRuleState, delta_rule

class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(6, 2 * 4 * 3 + 2)

    def forward(self, x, is_first, weights):
        rows = self.project(x)
        q, k, v = rows[..., :24].unflatten(-1, (2, 12)).split(4, -1)
        beta = rows[..., 24:].sigmoid()
        state = DeltaRuleState(weights)
        y, state = delta_rule(q.softmax(-1), k.softmax(-1), v, beta, is_first, state)
        return y.flatten(2), state.fast_weights

model, x = Memory(), torch.randn(5, 3, 6)
is_first, weights = torch.rand(5, 3) < 0.3, torch.randn(3, 2, 4, 4)
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
results = []
for run in (model, compiled):
    model.zero_grad()
    y, final = run(x, is_first, weights)
    (y.square().sum() + final.sum()).backward()
    results.append([y.detach(), final.detach(), model.project.weight.grad.clone()])
for eager, traced in zip(*results):
    torch.testing.assert_close(eager, traced)

from fastweights.kernels.machinery.example import make
from fastweights.kernels.registry import OPERATIONS
for name, operation in OPERATIONS.items():
    case = make(operation, dict.fromkeys("TBHKVD", 3)).to(torch.float32)
    arguments = case.operation.signature.unflatten(case.tensors, [])
    torch.compiler.reset()  # or all count as the same function, compiled too often
    traced = torch.compile(lambda *call: operation(*call), backend="aot_eager", fullgraph=True)
    found = traced(*arguments)
    torch.testing.assert_close(found, operation(*arguments))

from fastweights.agents.stem import build_stem
stem, frame = build_stem("resnet", (4, 20, 20)), torch.randint(0, 256, (3, 4, 20, 20)).byte()
gradients = []
for run in (stem, torch.compile(stem, backend="aot_eager", fullgraph=True)):
    stem.zero_grad()
    run(frame).square().sum().backward()
    gradients.append([weight.grad.clone() for weight in stem.parameters()])
torch.testing.assert_close(*gradients)
"""


@pytest.mark.compiler
def test_torch_compile_of_a_model_around_it():
    """One graph, forward and backward, gives the results of the eager model.

    It runs in a separate process, because dynamo cannot trace the shape checks of the tests.
    """
    found = Program(MODEL).end()
    assert found.returncode == 0, found.stderr


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_second_derivative_names_the_reference(name, options):
    case = example(name, 3, time=2, **options).to(torch.float32)
    leaf = case.tensors[0].requires_grad_()
    with kernels.backend("cpu"):
        y = case.run()[0]
        (grad,) = torch.autograd.grad(y.square().sum(), leaf, create_graph=True)
        with pytest.raises(RuntimeError, match=r'kernels\.backend\("reference"\)'):
            grad.sum().backward()


@pytest.mark.compiler
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_half_precision_inputs_float32_state(name, options, dtype):
    """Inputs are cast, the state stays float32, gradients have the dtype of the inputs."""
    half = example(name, 5, **options).to(dtype)
    count = len(half.operation.signature.state)
    half.tensors[-count:] = [t.float() for t in half.tensors[-count:]]
    with kernels.backend("cpu"):
        found = half.run_with_gradients()
    exact = truth(half)
    assert found["y"].dtype is torch.float32
    first = half.operation.signature.arguments[0].name
    assert found[f"grad {first}"].dtype is dtype
    # Relative to the largest entry, because an input's gradient is rounded to the input's dtype.
    rounding = torch.finfo(dtype).eps
    for key, right in exact.items():
        exactness = 1e-5 if found[key].dtype is torch.float32 else 1e-5 + rounding
        assert_agree({key: found[key].double()}, {key: right}, exactness)


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "options"), CASES)
def test_autocast_changes_nothing(name, options):
    case = example(name, 5, **options).to(torch.float32)
    for backend in ("cpu", "reference"):
        with kernels.backend(backend):
            plain = case.run()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                cast = case.run()
        assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "options"), CASES)
def test_any_number_of_threads_gives_the_same_bits(name, options):
    """The call is worth two threads; weight gradients sum over the batch in a fixed order."""
    sizes = {"T": 12, "B": 9, "H": 3, "K": 32, "V": 32, "D": 32}
    mask = torch.rand(12, 9, generator=torch.Generator().manual_seed(0)) < 0.1
    case = make(OPERATIONS[name], sizes, mask, **options).to(torch.float32)
    with kernels.backend("cpu"):
        found = by_threads(case.run_with_gradients, (1, 2, 3))
    for other in found[1:]:
        for tensor, expected in other.items():
            assert torch.equal(found[0][tensor], expected), tensor
