"""Attention in one call against its definition, a loop of steps."""

import pytest
import torch
from forks import Program

from fastweights import kernels
from fastweights.kernels.attention import Window, attention

B, H, M, K, V = 2, 1, 8, 4, 3
SEEN = 2  # steps before the unroll: the other slots of the window do not count


def results(backend: str, time: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(time, B, H, K), (time, B, H, K), (time, B, H, V), (B, H, M, K), (B, H, M, V)]
    given = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    q, k, v, keys, values = leaves = [tensor.requires_grad_() for tensor in given]
    count = torch.full((B, 1), float(SEEN), dtype=torch.float64)
    is_first = torch.zeros(time, B, dtype=torch.bool)
    is_first[time // 2, 1] = True
    with kernels.backend(backend):
        y, after = attention(q, k, v, is_first, Window(keys, values, count))
    loss = y.square().sum() + after.keys.square().sum() + after.values.square().sum()
    return [y, *after, *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("time", [1, 5, 12])
def test_slots_that_do_not_count_have_no_gradient(time):
    found, right = results("auto", time), results("reference", time)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    for grad in right[-2:]:
        assert not grad[:, :, : M - SEEN].any()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_forward_mode_runs_the_reference():
    q, k, v = torch.randn(3, 5, B, H, K, dtype=torch.float64)
    is_first, slots = torch.zeros(5, B, dtype=torch.bool), torch.zeros(B, H, M, K).double()
    fresh = Window(slots, slots, torch.zeros(B, 1).double())

    def last(q: torch.Tensor) -> torch.Tensor:
        return attention(q, k, v, is_first, fresh)[0][-1].square().sum()

    with kernels.backend("reference"):
        expected = [torch.func.grad(last)(q), torch.func.hessian(last)(q)]
    _, tangent = torch.func.jvp(last, (q,), (torch.ones_like(q),))
    torch.testing.assert_close(tangent, expected[0].sum())
    torch.testing.assert_close(torch.func.hessian(last)(q), expected[1])


COMPILED = """
import torch
from fastweights import kernels
from fastweights.kernels.attention import Window, attention

q, k, v = torch.randn(3, 5, 2, 1, 4)
is_first, slots = torch.zeros(5, 2, dtype=torch.bool), torch.zeros(2, 1, 8, 4)
fresh, graphs = Window(slots, slots, torch.zeros(2, 1)), []

def record(graph, _):
    graphs.append(graph.code)
    return graph

def run(q):
    return attention(q, k, v, is_first, fresh)[0]

for backend, is_fused in (("auto", True), ("reference", False)):
    torch.compiler.reset()
    graphs.clear()
    compiled = torch.compile(run, backend=record, fullgraph=True)
    with kernels.backend(backend):
        torch.testing.assert_close(compiled(q), run(q))
    torch.testing.assert_close(compiled(q), run(q))
    assert len(graphs) == 1 and ("scaled_dot_product_attention" in graphs[0]) == is_fused
"""


def test_a_compiled_graph_keeps_the_backend_that_was_forced_around_it():
    """In a process of its own, because Dynamo cannot trace the checks of shapes."""
    found = Program(COMPILED).end()
    assert found.returncode == 0, found.stderr
