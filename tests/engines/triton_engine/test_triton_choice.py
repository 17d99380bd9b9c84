"""When statistics on a GPU take the Triton kernel, when blocks of rows, and what plan says."""

import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import glasshead as gh
from engines.triton_engine import installed
from glasshead.engines import TRITON, reduce_by_fastest
from glasshead.engines.triton import engine
from glasshead.statistics.reductions import EntropySum

STATISTICS = [gh.Entropy(), gh.MaxWeight()]


@pytest.fixture
def gpu(monkeypatch):
    """Tensors that say they are on a GPU, of a machine that says it has one; nothing runs."""
    monkeypatch.setattr(engine, "find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with FakeTensorMode():
        yield lambda *shape, dtype=torch.bfloat16: torch.empty(shape, dtype=dtype, device="cuda")


def test_plan_tells_the_kernel(gpu):
    x = gpu(1, 8, 512, 64)
    plan = gh.Attention().plan(x, x, x, statistics=STATISTICS)
    assert plan.engine == "fused"
    assert plan.passes == 2
    assert plan.statistics == f"triton: {TRITON.about}"
    assert f"\nstatistics triton: {TRITON.about}" in str(plan)
    # What the operations of sums cost on a CPU says nothing here.
    plain = gh.Attention().plan(x, x, x)
    assert plan.flops - plain.flops == 2 * 64 * 8 * 512 * 512
    assert plan.multiple == 1.0
    assert plain.statistics is None


def test_plan_tells_what_takes_rows_beside_it(gpu):
    x = gpu(1, 8, 512, 64)
    statistics = [gh.Entropy(), gh.DistanceHistogram([0, 9])]
    plan = gh.Attention().plan(x, x, x, statistics=statistics)
    assert plan.statistics.endswith("; blocks of rows in plain torch for DiagonalSum")
    assert plan.passes == 3


@pytest.mark.parametrize(
    ("reason", "shape", "dtype", "options"),
    [
        ("so few scores", (1, 8, 16, 64), torch.bfloat16, {}),
        ("the inputs are of float64", (1, 8, 512, 64), torch.float64, {}),
        ("at most 256 wide, and these 320", (1, 8, 512, 320), torch.bfloat16, {}),
    ],
)
def test_plan_tells_why_blocks_of_rows_are_taken(gpu, reason, shape, dtype, options):
    x = gpu(*shape, dtype=dtype)
    plan = gh.Attention(**options).plan(x, x, x, statistics=STATISTICS)
    assert plan.statistics.startswith("blocks of rows in plain torch, ")
    assert reason in plan.statistics


def test_plan_tells_what_is_missing(gpu, monkeypatch):
    x = gpu(1, 8, 512, 64)
    attention = gh.Attention()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "older than compute capability 8.0" in str(
        attention.plan(x, x, x, statistics=STATISTICS)
    )
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    assert "pip install 'glasshead[gpu]'" in str(attention.plan(x, x, x, statistics=STATISTICS))


def test_plans_on_the_cpu_are_as_they_were():
    x = torch.empty(1, 8, 512, 64)
    assert gh.Attention().plan(x, x, x, statistics=STATISTICS).statistics is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "the inputs are on cpu"),
        ({"score": gh.Gaussian()}, "Gaussian is not an inner product"),
        ({"normalizer": gh.Sparsemax()}, "the weights of Sparsemax are not exponentials"),
    ],
)
def test_refusals(options, reason, monkeypatch):
    monkeypatch.setattr(engine, "_is_interpreted", lambda: False)
    x = torch.randn(1, 1, 5, 3)
    assert reason in TRITON.refusal(gh.Attention(**options).problem(x, x, x))


def test_parts_that_learn_are_refused_while_gradients_are_recorded(gpu):
    x = gpu(1, 2, 300, 64)
    for attention in (
        gh.Attention(bias=gh.RelativeBias(2)),
        gh.Attention(normalizer=gh.SoftmaxOne(torch.nn.Parameter(gpu(2)))),
        gh.Attention(score=gh.Dot(beta=torch.nn.Parameter(gpu(2)))),
        gh.Attention(bias=gpu(2, 300, 300).requires_grad_()),
    ):
        problem = attention.problem(x, x, x)
        assert TRITON.refusal(problem) == "its statistics have no gradient"
        with torch.no_grad():
            assert TRITON.refusal(problem) is None


def test_a_kernel_that_fails_is_told_once_and_rows_take_over(monkeypatch):
    """As where the compiler of Triton is broken: nothing is lost, and plan says why."""

    class Failing(engine.Triton):
        def refusal(self, problem):
            return self._failure

    failing = Failing()
    query = torch.randn(1, 1, 7, 3)
    problem = gh.Attention(mask=gh.causal()).problem(query, query, query)
    monkeypatch.setitem(sys.modules, "glasshead.engines.triton.passes", None)
    monkeypatch.setattr(engine, "_may_fail", lambda problem: True)
    with pytest.warns(UserWarning, match="are computed by blocks of rows in plain torch"):
        (found,) = failing.reduce(problem, [EntropySum()])
    assert failing.refusal(problem).startswith("it failed (")
    torch.testing.assert_close(found[0], reduce_by_fastest(problem, [EntropySum()])[0][0])


@pytest.mark.parametrize(
    ("ci", "cell", "outcome"),
    [
        ("", "vllm", pytest.skip.Exception),
        ("true", "", pytest.skip.Exception),
        ("true", "vllm", pytest.fail.Exception),
    ],
)
def test_without_triton_its_tests_are_left_out_and_fail_where_ci_has_it(
    monkeypatch, ci, cell, outcome
):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("GLASSHEAD_CELL", cell)
    with pytest.raises(
        outcome, match=r"^Triton is not installed; run pip install 'glasshead\[gpu\]'$"
    ):
        installed.require_triton()
