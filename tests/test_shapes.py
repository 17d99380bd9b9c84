"""The shapes that signatures promise are checked by beartype, in calls of every kind.

The public boundary has its own checks and sentences, which come first; what is checked here is all
that lies behind it.
"""

import functools
import importlib
import inspect
import pkgutil
import sys
from dataclasses import replace
from itertools import cycle

import jaxtyping
import pytest
import torch
from beartype import beartype
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from cases import NORMALIZERS, Case, EverySecond, cases, statistics_for
from glasshead.engines import reducing
from glasshead.statistics import eviction_scores
from glasshead.statistics.per_query import ArgMax
from hypothesis_profiles import examples

# The kernels are compiled by Numba, which takes no checks around them.
CHECKED = (
    *("glasshead.engines.fused", "glasshead.engines.reducing", "glasshead.engines.reference"),
    *("glasshead.engines.streaming.engine", "glasshead.statistics", "glasshead.recipe"),
)
SCORES = (gh.ScaledDot, gh.Dot, gh.Cosine, gh.Gaussian, gh.Additive)


def modules():
    """The checked modules, with those of packages."""
    for name in CHECKED:
        module = importlib.import_module(name)
        yield module
        for inner in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
            yield importlib.import_module(inner.name)


def functions(module):
    """The owner, name and value of each function, method and property that a module defines."""
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield module, name, value
        elif inspect.isclass(value):
            for inner, method in list(vars(value).items()):
                if inspect.isfunction(method) or isinstance(method, property):
                    yield value, inner, method


def has_shapes(function):
    return any("jaxtyping" in repr(type(one)) + repr(one) for one in annotations(function))


def annotations(function):
    """Annotations, and the parts of those that are unions."""
    for one in getattr(function, "__annotations__", {}).values():
        yield from (one, *getattr(one, "__args__", ()))


class Checks:
    """Checks around functions, and which of those with shapes nothing has called yet."""

    def __init__(self):
        self.uncalled = set()

    def around(self, function):
        checked = jaxtyping.jaxtyped(function, typechecker=beartype)
        if not has_shapes(function) or getattr(function, "__isabstractmethod__", False):
            return checked
        name = f"{function.__module__}.{function.__qualname__}"
        self.uncalled.add(name)

        @functools.wraps(function)
        def call(*args, **options):
            self.uncalled.discard(name)
            return checked(*args, **options)

        return call


@pytest.fixture(scope="module")
def checks():
    """Checks around every function of the checked modules, while the tests of this file run."""
    made = Checks()
    defined = [one for module in modules() for one in functions(module)]
    importing = [one for name, one in sys.modules.items() if name.startswith("glasshead")]
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in defined:
            if isinstance(value, property):
                patch.setattr(owner, name, property(made.around(value.fget)))
                continue
            checked = made.around(value)
            patch.setattr(owner, name, checked)
            # Where it was imported to.
            for module in importing if inspect.ismodule(owner) else ():
                if module is not owner and vars(module).get(name) is value:
                    patch.setattr(module, name, checked)
        yield made


def hold_in_engines(case, engine):
    attention, inputs = gh.Attention(engine=engine), case.inputs(requires_grad=True)
    seen = attention.observe(*inputs, [*statistics_for(case), ArgMax()], **case.call())
    torch.autograd.grad(seen.context.sum(), inputs)
    attention(*(x.detach() for x in inputs), **case.call())


def hold_in_recipes(case, normalizer, score):
    score = score(case.dim) if score is gh.Additive else score()
    attention = gh.Attention(normalizer=normalizer(), score=score.to(case.dtype))
    trace = attention.trace(*case.inputs(), **case.call())
    for statistic in statistics_for(case, normalizer):
        statistic.of(trace)


def hold_in_heads(case, bias):
    query, key, _ = case.inputs()
    W = gh.Attention(bias=bias).weights(query, key, **case.call())
    W.seen(range(1))
    W.head(*(0 for _ in case.batch), case.heads - 1).dense()


class OwnBias(gh.Bias):
    """A number for each pair."""

    def forward(self, tile):
        return tile.distance().to(tile.dtype)


def test_every_signature_with_shapes_holds(checks):
    case = Case((2,), 3, 2, queries=5, keys=11, dim=7, value_dim=7, seed=1, dtype=torch.float32)
    lengths, ids = torch.tensor([4, 11]), torch.arange(11) // 3
    hidden = torch.ones(2, 1, 5, 11).triu(7) > 0
    masks = [
        *(None, gh.causal(), gh.causal() & gh.window(before=3), ~gh.window(before=2)),
        *(gh.padding(lengths), gh.causal() | gh.prefix(lengths), gh.documents(ids)),
        *(gh.dense(~hidden), EverySecond(), gh.from_huggingface((~hidden[:, 0, 0]).long())[0]),
        gh.from_torch_mha(hidden[0, 0], hidden[:, 0, 0])[0],
    ]
    biases = gh.ALiBi(6), gh.RelativeBias(6), OwnBias(), None
    engines = "fused", "streaming", "reference"
    for mask, engine, bias in zip(masks, cycle(engines), cycle(biases)):
        hold_in_engines(replace(case, mask=mask), engine)
        hold_in_heads(replace(case, mask=mask), bias)
    hold_in_engines(replace(case, queries=11, mask=gh.window(before=3)), "fused")
    for normalizer in NORMALIZERS:
        hold_in_recipes(case, normalizer, gh.Dot)
    for score in SCORES:
        hold_in_recipes(case, gh.Softmax, score)
    gh.from_additive(torch.zeros(2, 1, 5, 11).masked_fill(hidden, -torch.inf))
    assert gh.ALiBi(6).slopes.shape == (6,)
    received = torch.rand(2, 6, 11)
    assert eviction_scores.h2o_scores(received, 3).shape == (2, 3, 11)
    assert eviction_scores.snapkv_scores(received, 3, window=3).shape == (2, 3, 11)
    assert eviction_scores.tova_scores(received, 3).shape == (2, 3, 11)
    problem = gh.Attention().problem(*case.inputs(), None, None, None)
    assert reducing.of_rows([torch.zeros(12, 5)], problem).shape == (2, 6, 5)
    # The first refuses every call, and the second is a protocol's.
    assert checks.uncalled == {
        "glasshead.recipe.normalizers.Normalizer.logsumexp",
        "glasshead.engines.reference.Engine.run",
    }


# beartype draws the items that it looks at; hypothesis only wants to have been told.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.usefixtures("checks")
@pytest.mark.slow
@given(
    *(cases(), st.sampled_from(["auto", "fused", "streaming", "reference"])),
    *(st.sampled_from(NORMALIZERS), st.sampled_from(SCORES)),
    st.sampled_from([None, gh.ALiBi, gh.RelativeBias, OwnBias]),
)
@examples(200)
def test_shapes_hold_in_every_call(case, engine, normalizer, score, bias):
    hold_in_engines(case, engine)
    hold_in_recipes(case, normalizer, score)
    hold_in_heads(case, bias and (bias() if bias is OwnBias else bias(case.heads)))
