"""Plans: the engine of a call by each branch of the rule of `engine="auto"`, and its reason."""

import errno
import re

import pytest
import torch

import glasshead as gh
from glasshead.attention import attention, profiles
from glasshead.engines.streaming import machine_code, matrix_tiles
from glasshead.engines.streaming.kernels import processor
from glasshead.statistics.reductions import Reduction

pytestmark = pytest.mark.usefixtures("kernels_of_the_processor_at_hand")

FEW = "below 2^20 scores, blocks and threads cost more than they save"
FIRST = "it is the first that can compute the call, of fused, streaming and reference"
NOT_KNOWN = "streaming is not known to be faster: "
FEWER = "the call has fewer than 2^14 scores"
SHORT = NOT_KNOWN + FEWER
TRACED = f"{NOT_KNOWN}torch.compile and torch.jit trace the call, and SDPA is what they know"


def empty(length, dim=64, dtype=torch.float32, heads=4):
    return torch.empty(1, heads, length, dim, dtype=dtype, device="meta")


def plan_of(length, dim=64, dtype=torch.float32, keys=None, heads=4, **options):
    key = empty(keys or length, dim, dtype, heads)
    return gh.Attention(**options).plan(empty(length, dim, dtype, heads), key, key)


def on_processor(monkeypatch, name):
    """Take the processor at hand for one of those that are shipped, or for one of its own kind."""
    own = processor.at_hand()._replace(name=name)
    found = next((one for one in processor.SHIPPED if one.name == name), own)
    monkeypatch.setattr(processor, "at_hand", lambda: found)


@pytest.fixture(autouse=True)
def profiles_read_again():
    """Profiles are read in each test, for its processor, and no call is remembered."""
    profiles.profiles.cache_clear()
    attention._REMEMBERED.clear()
    yield
    profiles.profiles.cache_clear()


def installed(monkeypatch, folder, *features):
    """An installation with machine code, on a processor that has products of bfloat16."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(machine_code, "in_package", lambda: True)
    on_processor(monkeypatch, "x86_64-avx512bf16")
    monkeypatch.setattr(processor, "has", {"avx512bf16", *features}.__contains__)


@pytest.fixture
def zen4(monkeypatch, tmp_path):
    installed(monkeypatch, tmp_path)


@pytest.fixture
def zen5(monkeypatch, tmp_path):
    """Its profile has no float64."""
    installed(monkeypatch, tmp_path, "avx512vp2intersect")


def half(dtype):
    return {"dtype": dtype, "mask": gh.causal()}


def times(plan):
    """Streaming's predicted times in a reason, and the profile."""
    found = re.search(
        r"([\d.]+) × SDPA's time, ([\d.]+) × with gradients, by the profile '(.*?)'", plan.reason
    )
    return float(found[1]), float(found[2]), found[3]


@pytest.mark.usefixtures("zen4")
@pytest.mark.parametrize(
    ("engine", "reason", "length", "options"),
    [
        # 4 · 511² scores are fewer than 2^20, and 4 · 512² are as many.
        ("reference", FEW, 511, {"softcap": 9.0, "score": gh.Cosine()}),
        ("streaming", FIRST, 512, {"softcap": 9.0, "score": gh.Cosine()}),
        # One call of machine code pays from 4 · 64² = 2^14 scores on.
        ("reference", FEWER, 63, {"softcap": 9.0}),
        ("streaming", FIRST, 64, {"softcap": 9.0}),
        ("reference", FEWER, 63, {"normalizer": gh.SoftmaxOne(), "bias": gh.ALiBi(4)}),
        ("streaming", FIRST, 64, {"normalizer": gh.SoftmaxOne(), "bias": gh.ALiBi(4)}),
        ("reference", FEWER, 1, {"keys": 4095, "softcap": 9.0}),
        ("streaming", FIRST, 1, {"keys": 4096, "softcap": 9.0}),
        ("streaming", FIRST, 2048, {"normalizer": gh.SoftmaxOne()}),
        ("reference", FIRST, 2048, {"normalizer": gh.Sparsemax()}),
        ("reference", FIRST, 2048, {"score": gh.Gaussian()}),
        ("reference", "it is named, by engine='reference'", 2048, {"engine": "reference"}),
        ("streaming", "it is named, by engine='streaming'", 7, {"engine": "streaming"}),
        # 4 · 63² scores, and 4 · 4095, are fewer than 2^14.
        ("fused", SHORT, 63, {"mask": gh.causal()}),
        ("fused", SHORT, 1, {"keys": 4095, "bias": gh.RelativeBias(4)}),
        (
            "fused",
            f"{NOT_KNOWN}it keeps no weights that could be dropped",
            2048,
            {"dropout": 0.5},
        ),
    ],
)
def test_the_plan_states_the_branch_of_the_rule(engine, reason, length, options):
    plan = plan_of(length, **options)
    assert (plan.engine, plan.reason) == (engine, reason)
    assert f"\nreason     {reason}\n" in str(plan)


@pytest.mark.usefixtures("zen4")
def test_the_plan_states_the_predicted_times_and_the_profile():
    forward, both, name = times(plan := plan_of(4096, mask=gh.causal()))
    assert plan.reason.startswith("it takes ")
    assert forward < 1 > both
    assert name == "zen4"
    forward, both, name = times(plan := plan_of(64, mask=gh.causal()))
    assert plan.engine == "fused"
    assert plan.reason.startswith("streaming takes ")
    assert forward > 1 < both


@pytest.mark.usefixtures("zen4")
@pytest.mark.parametrize(
    ("engine", "length", "options"),
    [
        ("fused", 64, {}),
        ("fused", 1, {"keys": 4096}),
        ("fused", 67, {"bias": torch.zeros(67, 67)}),
        ("streaming", 1021, {"bias": gh.RelativeBias(4)}),
        ("streaming", 1021, {"bias": torch.zeros(4, 1021, 1021)}),
        ("streaming", 1021, {"bias": torch.zeros(1021, 1021), "dtype": torch.bfloat16}),
        ("streaming", 2039, {"mask": gh.causal() & ~gh.window(before=2)}),
    ],
)
def test_biases_holes_and_short_calls_are_predicted(engine, length, options):
    plan = plan_of(length, **{"mask": gh.causal(), **options})
    forward, both, name = times(plan)
    assert (plan.engine, name) == (engine, "zen4")
    assert (forward < 1 > both) is (engine == "streaming")


@pytest.mark.usefixtures("zen5")
def test_the_default_profile_streams_what_sdpa_makes_a_tensor_of():
    plan = plan_of(2039, dtype=torch.float64, mask=gh.causal(), bias=gh.RelativeBias(4))
    assert (plan.engine, times(plan)[2]) == ("streaming", "default")


@pytest.mark.usefixtures("zen5")
def test_other_dtypes_have_the_default_profile():
    plan = plan_of(2048, dtype=torch.float64)
    assert (plan.engine, times(plan)[2]) == ("fused", "default")


@pytest.mark.usefixtures("zen4")
def test_sdpa_comes_first_while_a_call_is_compiled(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert plan_of(4096, mask=gh.causal()).reason == TRACED


@pytest.mark.usefixtures("zen4")
def test_no_call_waits_for_a_compiler(monkeypatch):
    assert plan_of(4096, mask=gh.causal()).engine == "streaming"
    profiles.profiles.cache_clear()
    monkeypatch.setattr(machine_code, "in_package", lambda: False)
    plan = plan_of(4096, mask=gh.causal())
    assert (plan.engine, times(plan)[2]) == ("fused", "default")


@pytest.mark.usefixtures("zen4")
def test_bfloat16_follows_the_profile_if_the_system_permits_matrix_tiles(monkeypatch):
    monkeypatch.setattr(processor, "has", {"avx512bf16", "amx-tile", "amx-bf16"}.__contains__)
    monkeypatch.setattr(matrix_tiles, "_request", lambda: 0)
    assert times(plan_of(2048, **half(torch.bfloat16)))[2] == "intel-amx"
    profiles.profiles.cache_clear()
    monkeypatch.setattr(matrix_tiles, "_request", lambda: errno.ENOSPC)
    plan = plan_of(2048, **half(torch.bfloat16))
    assert (plan.engine, times(plan)[2]) == ("fused", "default")
    assert plan.reason.endswith(
        "; the system does not permit matrix tiles (AMX): No space left on device"
    )
    assert times(plan_of(2048, mask=gh.causal()))[2] == "intel-amx"


def test_why_sdpa_cannot_compute_a_long_call_is_told():
    plan = plan_of(4096, mask=gh.causal(), softcap=30.0)
    assert plan.refused == {"fused": "SDPA has no softcap"}


def test_a_streamed_call_is_what_is_observed_with_and_without_a_gradient(monkeypatch):
    # The kernels are those of the processor at hand, chosen as on another one.
    zen4 = {"float32": profiles.shipped("zen4")}
    monkeypatch.setattr(profiles, "profiles", lambda: zen4)
    torch.manual_seed(3)
    query, key, value = (torch.randn(1, 5, 2053, 64, requires_grad=True) for _ in range(3))
    attention = gh.Attention(mask=gh.causal())
    assert attention.plan(query, key, value).engine == "streaming"
    context = attention(query, key, value)
    seen = attention.observe(query, key, value, [gh.Entropy()])
    assert torch.equal(seen.context, context)
    with torch.no_grad():
        assert torch.equal(attention(query, key, value), context)
    found = torch.autograd.grad(context.square().sum(), (query, key, value))
    plain = gh.Attention(mask=gh.causal(), engine="fused")(query, key, value)
    torch.testing.assert_close(context, plain, rtol=1e-5, atol=1e-5)
    expected = torch.autograd.grad(plain.square().sum(), (query, key, value))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "mask",
    [
        gh.causal() & gh.window(before=63),
        gh.documents(torch.arange(2048) // 128),
        gh.documents(torch.arange(2048) // 128) & gh.causal(),
    ],
)
def test_what_windows_and_documents_hide_is_skipped(mask):
    assert plan_of(2048, 16, mask=mask, heads=2).engine == "streaming"


class RowsAlone(Reduction):
    """A reduction of one's own, which takes complete rows."""

    def of(self, rows):
        return (rows.weights.amax(-1),)


class Largest(gh.Statistic):
    unit = "weight"

    def reductions(self, problem):
        del problem
        return (RowsAlone(),)

    def finish(self, problem, *reduced):
        del problem
        return reduced[0][0]


@pytest.mark.parametrize("engine", ["streaming", "fused"])
def test_rows_of_a_few_queries_take_the_memory_of_those_alone(engine):
    attention, x = gh.Attention(engine=engine), torch.randn(5, 5)
    plan = attention.plan(x, x, x, statistics=[Largest()])
    # Six steps of 5 × 5 scores in float32 are 600 bytes, and a thread's block of scores is more.
    assert 600 <= plan.bytes < 10**5
    assert attention.observe(x, x, x, [Largest()], budget=10**5).largest.shape == (5,)
