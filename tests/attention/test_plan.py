"""Plans: the engine of a call by each branch of the rule of `engine="auto"`, and its reason."""

import errno

import pytest
import torch

import glasshead as gh
from glasshead.engines.streaming import machine_code, matrix_tiles
from glasshead.engines.streaming.kernels import processor
from glasshead.statistics.reductions import Reduction

FEW = "below 2^20 scores, blocks and threads cost more than they save"
FIRST = "it is the first that can compute the call, of fused, streaming and reference"
SKIPPED = "the mask hides 97.7 % of the pairs at the ends of rows, more than 55 %: they are skipped"
FULL = "SDPA is slower where all queries see the same keys, from 2^{} scores on in {}"
CAUSAL = "SDPA is slower with a causal mask, from 2^24 scores on in {}"
MASKED = (
    "the mask hides 25.2 % of the pairs at the ends of rows, at least 25 %: they are skipped, "
    "from 2^24 scores on in {}"
)
SLOWER = "streaming is not known to be faster: "
HIDES_LITTLE = (
    "the mask is not causal, and hides less than 25 % at the ends of rows or pairs within them"
)
COMPILED = "no machine code for this processor is installed, and it would be compiled first"
TRACED = "torch.compile and torch.jit trace the call, and SDPA is what they know"


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


@pytest.fixture
def machine_code_in_package(monkeypatch):
    """An installation with machine code, on a processor without products of half precision."""
    monkeypatch.setattr(machine_code, "in_package", lambda: True)
    on_processor(monkeypatch, "x86_64-avx512")
    monkeypatch.setattr(processor, "has", lambda feature: False)


def half(dtype, dim=64):
    return {"dtype": dtype, "dim": dim, "mask": gh.causal()}


def quarter(dtype=torch.float32):
    """A window that hides a quarter of the pairs of 2048 tokens: 1027 · 1028 of 2048²."""
    return {"dtype": dtype, "mask": gh.window(before=1020, after=1020)}


@pytest.mark.usefixtures("machine_code_in_package")
@pytest.mark.parametrize(
    ("engine", "reason", "length", "options"),
    [
        # 4 · 511² scores are fewer than 2^20, and 4 · 512² are as many.
        ("fused", FEW, 511, {"mask": gh.causal()}),
        ("reference", FEW, 511, {"softcap": 9.0}),
        ("streaming", FIRST, 512, {"softcap": 9.0}),
        ("streaming", FIRST, 2048, {"normalizer": gh.SoftmaxOne()}),
        ("reference", FIRST, 2048, {"normalizer": gh.Sparsemax()}),
        ("reference", FIRST, 2048, {"score": gh.Gaussian()}),
        # 47 keys a query, and fewer at first: (2048 · 47 - 46 · 47 / 2) / 2048² are seen.
        ("streaming", SKIPPED, 2048, {"mask": gh.causal() & gh.window(before=46)}),
        ("streaming", SKIPPED, 2048, {"mask": gh.causal() & gh.window(before=46), "heads": 1}),
        ("streaming", FULL.format(25, "float32"), 2048, {"heads": 8}),
        ("streaming", FULL.format(25, "float32"), 2048, {"heads": 8, "dim": 32}),
        ("streaming", FULL.format(25, "float32"), 2048, {"heads": 8, "dim": 128}),
        ("streaming", FULL.format(25, "float32"), 2048, {"heads": 8, "mask": gh.padding([3])}),
        ("streaming", FULL.format(24, "float16"), 512, {"heads": 64, "dtype": torch.float16}),
        ("streaming", CAUSAL.format("float32"), 2048, {"mask": gh.causal()}),
        ("streaming", CAUSAL.format("float32"), 2048, {"mask": gh.causal(offset=0)}),
        ("streaming", CAUSAL.format("float32"), 512, {"mask": gh.causal(), "heads": 64}),
        ("streaming", CAUSAL.format("bfloat16"), 2048, half(torch.bfloat16)),
        ("streaming", CAUSAL.format("bfloat16"), 4096, half(torch.bfloat16, 32)),
        ("streaming", CAUSAL.format("float16"), 2048, half(torch.float16, 128)),
        ("streaming", MASKED.format("float32"), 2048, quarter()),
        ("streaming", MASKED.format("bfloat16"), 2048, quarter(torch.bfloat16)),
        ("reference", "it is named, by engine='reference'", 2048, {"engine": "reference"}),
        ("streaming", "it is named, by engine='streaming'", 7, {"engine": "streaming"}),
    ],
)
def test_the_plan_tells_the_branch_of_the_rule(engine, reason, length, options):
    plan = plan_of(length, **options)
    assert (plan.engine, plan.reason) == (engine, reason)
    assert f"\nreason     {reason}\n" in str(plan)


@pytest.mark.usefixtures("machine_code_in_package")
@pytest.mark.parametrize(
    ("why", "length", "options"),
    [
        ("16760836 are fewer than 2^24 scores", 2047, {"mask": gh.causal()}),
        ("29331463 are fewer than 2^25 scores", 2047, {"heads": 7}),
        ("4190209 are fewer than 2^24 scores", 2047, {"mask": gh.window(before=2), "heads": 1}),
        (
            "511 tokens are fewer than 512, causal, in float32",
            511,
            {"mask": gh.causal(), "heads": 67},
        ),
        (
            "1 tokens are fewer than 512, full, in float32",
            1,
            {"mask": gh.causal(), "keys": 2**23},
        ),
        (
            "4097 tokens are more than 4096, causal, in bfloat16",
            4097,
            half(torch.bfloat16),
        ),
        ("the inputs are of float64", 2048, {"dtype": torch.float64}),
        (
            "the head_dim 31 is not within 32 to 128, full, in float32",
            2048,
            {"dim": 31, "heads": 8},
        ),
        (
            "the head_dim 129 is not within 32 to 128, full, in float32",
            2048,
            {"dim": 129, "heads": 8},
        ),
        (
            "the head_dim 65 is not within 32 to 64, causal, in bfloat16",
            2048,
            half(torch.bfloat16, 65),
        ),
        (
            "the head_dim 31 is not within 32 to 128, causal, in float16",
            2048,
            half(torch.float16, 31),
        ),
        (
            "full calls in bfloat16 are not measured to be faster",
            2048,
            {"dtype": torch.bfloat16, "heads": 8},
        ),
        (
            "masked calls in float16 are not measured to be faster",
            2048,
            quarter(torch.float16),
        ),
        ("a bias is added", 2048, {"bias": gh.ALiBi(4)}),
        (HIDES_LITTLE, 2048, {"mask": gh.causal() & ~gh.window(before=1)}),
        (HIDES_LITTLE, 2048, {"mask": gh.window(before=1900, after=1900)}),
        ("it keeps no weights that could be dropped", 2048, {"dropout": 0.5}),
    ],
)
def test_sdpa_comes_first_where_streaming_is_not_known_to_be_faster(why, length, options):
    plan = plan_of(length, **options)
    assert (plan.engine, plan.reason) == ("fused", SLOWER + why)


@pytest.mark.parametrize(
    ("module", "name", "told", "why"),
    [(machine_code, "in_package", False, COMPILED), (torch.compiler, "is_compiling", True, TRACED)],
)
@pytest.mark.usefixtures("machine_code_in_package")
def test_sdpa_comes_first_where_kernels_are_missing_or_traced(monkeypatch, module, name, told, why):
    monkeypatch.setattr(module, name, lambda: told)
    plan = plan_of(2048, mask=gh.causal())
    assert (plan.engine, plan.reason) == ("fused", f"streaming is not known to be faster: {why}")


@pytest.mark.usefixtures("machine_code_in_package")
@pytest.mark.parametrize(
    ("dtype", "feature"),
    [
        (torch.bfloat16, "amx-bf16"),
        (torch.float16, "amx-fp16"),
        (torch.float16, "avx512fp16"),
    ],
)
@pytest.mark.usefixtures("machine_code_in_package")
def test_sdpa_comes_first_where_the_processor_has_its_products(monkeypatch, dtype, feature):
    monkeypatch.setattr(processor, "has", lambda one: one == feature)
    plan = plan_of(2048, **half(dtype))
    why = f"SDPA has this processor's products of {str(dtype)[6:]}"
    assert (plan.engine, plan.reason) == ("fused", f"streaming is not known to be faster: {why}")
    assert plan_of(2048, mask=gh.causal()).engine == "streaming"


@pytest.mark.usefixtures("machine_code_in_package")
def test_bfloat16_streams_on_matrix_tiles_if_the_system_permits_them(monkeypatch):
    on_processor(monkeypatch, "x86_64-avx512bf16")
    monkeypatch.setattr(processor, "has", {"avx512bf16", "amx-tile", "amx-bf16"}.__contains__)
    monkeypatch.setattr(matrix_tiles, "_request", lambda: 0)
    plan = plan_of(2048, **half(torch.bfloat16))
    assert (plan.engine, plan.reason) == ("streaming", CAUSAL.format("bfloat16"))
    assert plan_of(2048, **quarter(torch.bfloat16)).engine == "streaming"
    for length, dim in ((8192, 64), (2048, 128)):
        assert plan_of(length, **half(torch.bfloat16, dim)).engine == "fused"
    assert plan_of(4096, dtype=torch.bfloat16).engine == "fused"
    monkeypatch.setattr(matrix_tiles, "_request", lambda: errno.ENOSPC)
    plan = plan_of(2048, **half(torch.bfloat16))
    why = (
        "SDPA has this processor's products of bfloat16, and the system does not permit matrix "
        "tiles (AMX): No space left on device"
    )
    assert (plan.engine, plan.reason) == ("fused", SLOWER + why)


@pytest.mark.usefixtures("machine_code_in_package")
@pytest.mark.parametrize(
    ("length", "options"),
    [
        (8192, half(torch.bfloat16)),
        (2048, half(torch.bfloat16, 128)),
        (2048, {"dtype": torch.bfloat16}),
        (2048, {"dtype": torch.bfloat16, "mask": gh.padding([2047])}),
    ],
)
def test_bfloat16_streams_sooner_where_the_kernels_take_its_products(monkeypatch, length, options):
    assert plan_of(length, **options).engine == "fused"
    monkeypatch.setattr(processor, "has", lambda one: one == "avx512bf16")
    assert plan_of(length, **options).engine == "streaming"
    assert plan_of(length, **{**options, "dtype": torch.float64}).engine == "fused"


@pytest.mark.usefixtures("machine_code_in_package")
def test_full_calls_of_wide_heads_stay_with_sdpa_in_bfloat16(monkeypatch):
    monkeypatch.setattr(processor, "has", lambda one: one == "avx512bf16")
    plan = plan_of(2048, dim=65, dtype=torch.bfloat16)
    why = "the head_dim 65 is not within 32 to 64, full, in bfloat16"
    assert (plan.engine, plan.reason) == ("fused", SLOWER + why)


@pytest.mark.usefixtures("machine_code_in_package")
def test_full_calls_of_wide_heads_stay_with_sdpa_without_avx512(monkeypatch):
    assert plan_of(4096, dim=33).engine == "streaming"
    on_processor(monkeypatch, "x86_64-avx2")
    assert plan_of(4096, dim=32).engine == "streaming"
    assert plan_of(4096, dim=128, mask=gh.causal()).engine == "streaming"
    plan = plan_of(4096, dim=33)
    why = "the head_dim 33 is not within 32 to 32, full, in float32"
    assert (plan.engine, plan.reason) == ("fused", SLOWER + why)


@pytest.mark.usefixtures("machine_code_in_package")
@pytest.mark.parametrize("name", ["aarch64", "own-kind"])
def test_sdpa_comes_first_where_nothing_was_measured(monkeypatch, name):
    assert plan_of(4096, mask=gh.causal()).engine == "streaming"
    on_processor(monkeypatch, name)
    plan = plan_of(4096, mask=gh.causal())
    why = f"its speed was not measured on a processor such as {name}"
    assert (plan.engine, plan.reason) == ("fused", SLOWER + why)


PLAIN = (
    "all heads are one call of machine code on this processor, and SDPA is slower from 128 tokens "
    "on"
)


@pytest.fixture
def zen5(monkeypatch):
    """An installation with machine code on Zen 5."""
    monkeypatch.setattr(machine_code, "in_package", lambda: True)
    on_processor(monkeypatch, "x86_64-avx512bf16")
    monkeypatch.setattr(processor, "has", {"avx512bf16", "avx512vp2intersect"}.__contains__)


@pytest.mark.usefixtures("zen5")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask": gh.causal()},
        {"mask": gh.causal() & gh.window(before=5)},
        {"mask": gh.window(before=120, after=120)},
        {"mask": gh.padding([3])},
        {"keys": 131},
        {"keys": 131, "mask": gh.causal()},
        {"dim": 32, "heads": 1},
        {"dim": 96},
        {"dim": 128},
    ],
)
def test_plain_calls_come_first_on_zen_5(monkeypatch, options, dtype):
    plan = plan_of(128, dtype=dtype, **options)
    assert (plan.engine, plan.reason) == ("streaming", PLAIN)
    monkeypatch.setattr(processor, "has", lambda feature: feature == "avx512bf16")
    assert plan_of(128, dtype=dtype, **options).engine == "fused"
    on_processor(monkeypatch, "x86_64-avx2")
    monkeypatch.setattr(processor, "has", lambda feature: True)
    assert plan_of(128, dtype=dtype, **options).engine == "fused"


@pytest.mark.usefixtures("zen5")
@pytest.mark.parametrize(
    ("length", "options"),
    [
        (127, {}),
        (1, {"keys": 4096}),
        (128, {"keys": 127}),
        (128, {"dtype": torch.float64}),
        (128, {"dim": 31}),
        (128, {"dim": 48}),
        (128, {"dim": 160}),
        # Keys that no query sees, and queries that see none, have to be cleared.
        (128, {"keys": 131, "mask": gh.causal(offset=0)}),
        (131, {"keys": 128, "mask": gh.causal()}),
        (128, {"mask": gh.dense(torch.ones(128, 128, dtype=torch.bool).tril())}),
        (128, {"mask": gh.documents(torch.arange(128) // 64)}),
        (128, {"bias": gh.ALiBi(4)}),
        (128, {"dropout": 0.5}),
        (128, {"score": gh.ScaledDot(beta=torch.rand(4))}),
    ],
)
def test_other_calls_stay_with_sdpa_on_zen_5(length, options):
    assert plan_of(length, **options).engine == "fused"


@pytest.mark.usefixtures("zen5")
def test_a_softcap_takes_plain_calls_sooner_on_zen_5():
    assert plan_of(127, softcap=9.0).engine == "reference"
    plan = plan_of(128, softcap=9.0)
    assert (plan.engine, plan.reason) == ("streaming", FIRST)
    assert plan_of(128, softcap=9.0, bias=gh.ALiBi(4)).engine == "reference"


@pytest.mark.usefixtures("zen5")
def test_calls_that_are_long_end_at_an_interrupt():
    """2^36 products of numbers are one call of machine code, and more are shared by Python."""
    assert plan_of(8192, heads=16).reason == PLAIN
    assert plan_of(8193, heads=16).reason == FULL.format(25, "float32")


def test_why_sdpa_cannot_compute_a_long_call_is_told():
    plan = plan_of(4096, mask=gh.causal(), softcap=30.0)
    assert plan.refused == {"fused": "SDPA has no softcap"}


@pytest.mark.usefixtures("machine_code_in_package")
def test_a_streamed_call_is_what_is_observed_with_and_without_a_gradient():
    torch.manual_seed(3)
    query, key, value = (torch.randn(1, 5, 2053, 37, requires_grad=True) for _ in range(3))
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
