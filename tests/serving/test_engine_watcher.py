"""Watching a model runner: what waits is settled in time, and statistics are those of float64."""

from types import SimpleNamespace

import pytest
import torch

import glasshead as gh
from glasshead.serving.cache_layout import CacheLayout
from glasshead.serving.engine_watcher import EngineWatcher, ServedChoices
from glasshead.serving.plugin import _is_of
from glasshead.serving.results import SeenRequest, joined_heads, seen_of, to_bytes
from glasshead.serving.served_layers import RefusalError
from glasshead.serving.watch_vllm import checked, watch_vllm
from glasshead.watching.recorded_call import Call, CallInfo
from serving.fake_engine import CPUAttentionBackendImpl, FakeRunner, FlashAttentionImpl

STATISTICS = {
    "entropy": gh.Entropy(),
    "received": gh.Received(),
    "top_k": gh.TopK(3),
    "sink": gh.MassOn([0]),
    "lse": gh.LogSumExp(),
    "weight": gh.MaxWeight(),
    "arg_max": gh.ArgMax(),
    "score": gh.MaxScore(),
    "distance": gh.MeanDistance(),
}
SLOPES, SINKS = torch.tensor([0.5, 0.125, 0.03, 0.01]), torch.tensor([0.3, -0.7, 2.0, 0.0])


def layers(**more):
    return [CPUAttentionBackendImpl(4, 2, 6, **more) for _ in range(3)]


def taken(watcher, name, *, whole=True) -> SeenRequest | str:
    request = watcher.taken(name, whole=whole)
    order = [*watcher.layers]
    return seen_of([to_bytes(request, watcher.groups, watcher.choices.statistics, order)])


def expected(runner, name, number, first=0) -> dict:
    """Compute the statistics of a request in float64, by hand, from what the layer was given."""
    impl = runner.layers[f"layers.{number}.self_attn.attn"].impl
    given = runner.given[f"layers.{number}.self_attn.attn", name]
    length = max(position + len(q) for position, q, _ in given)
    q, k = torch.zeros(4, length, 6).double(), torch.zeros(2, length, 6).double()
    # The keys of a token are those of its last computation, the query that of its first.
    for position, query, key in given:
        places = slice(position, position + len(query))
        k[:, places] = key.double().transpose(0, 1)
    for position, query, _ in reversed(given):
        q[:, position : position + len(query)] = query.double().transpose(0, 1)
    scores = q @ k.repeat_interleave(2, 0).mT * impl.scale
    if impl.logits_soft_cap:
        scores = impl.logits_soft_cap * torch.tanh(scores / impl.logits_soft_cap)
    i, j = torch.arange(length)[:, None], torch.arange(length)
    if impl.alibi_slopes is not None:
        scores -= impl.alibi_slopes.double()[:, None, None] * (i - j).abs()
    hidden = (j > i) | ((j <= i - impl.sliding_window) & (impl.sliding_window > 0))
    scores = scores.masked_fill(hidden, -torch.inf)[:, first:]
    lse = scores.logsumexp(-1)
    if impl.sinks is not None:
        lse = torch.logaddexp(lse, impl.sinks.double()[:, None])
    weights = (scores - lse[..., None]).exp()
    return {
        "entropy": torch.special.entr(weights).sum(-1),
        "received": weights.sum(-2),
        "top_k": weights.sort(dim=-1, descending=True, stable=True),
        "sink": weights[..., 0],
        "lse": lse,
        "weight": weights.amax(-1),
        "arg_max": weights.argmax(-1),
        "score": scores.flatten(1).amax(-1),
        "distance": (weights * (i - j).abs()[first:]).sum(-1),
    }


def check(runner, name, seen, first=0, tolerance=5e-6):
    for number, layer in enumerate(seen.values()):
        wanted = expected(runner, name, number, first)
        # The last layers were not selected everywhere.
        for what, value in wanted.items():
            got = layer[what]
            if what == "top_k":
                torch.testing.assert_close(
                    got.weights[0].double(), value.values[..., :3], atol=tolerance, rtol=0
                )
                assert torch.equal(got.keys[0][:, 3:], value.indices[:, 3:, :3])
            elif what == "arg_max":
                assert torch.equal(got[0], value)
            else:
                torch.testing.assert_close(
                    got[0].double(), value, atol=5 * tolerance, rtol=0, msg=what
                )


KINDS = {
    "full": {},
    "window": {"window": 37},
    "softcap": {"softcap": 3.0},
    "slopes": {"slopes": SLOPES},
    "sinks": {"sinks": SINKS},
    "all": {"window": 29, "softcap": 5.0, "slopes": SLOPES, "sinks": SINKS},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_statistics_of_a_batch_are_those_of_float64(kind, dtype):
    runner = FakeRunner(layers(**KINDS[kind]), dtype=dtype)
    watcher = EngineWatcher(runner, ServedChoices(STATISTICS, every=11))
    # A prompt in two chunks, another in one, one token, and generated tokens.
    runner.step({"a": 41, "b": 67})
    runner.step({"b": 1, "a": 23, "c": 1})
    for _ in range(43):
        runner.step({"a": 1, "c": 1, "b": 1})
    watcher.stop()
    for name, count in ("a", 107), ("b", 111), ("c", 44):
        seen = taken(watcher, name)
        assert [*seen] == [f"layers.{n}.self_attn" for n in range(3)]
        assert seen["layers.1.self_attn"].entropy.shape == (1, 4, count)
        check(runner, name, seen)
    assert not watcher.requests


@pytest.mark.parametrize("kind", ["full", "window"])
def test_a_cache_with_keys_before_values_is_read_as_it_is(kind):
    """As on a GPU, where a block is not the first axis, and heads lie before tokens in memory."""
    impls = [FlashAttentionImpl(4, 2, 6, **KINDS[kind]) for _ in range(3)]
    runner = FakeRunner(impls, dtype=torch.bfloat16)
    watcher = EngineWatcher(runner, ServedChoices(STATISTICS, every=5, keep=True))
    runner.step({"a": 41, "b": 67})
    for _ in range(7):
        runner.step({"a": 1, "b": 1})
    watcher.stop()
    for name, count in ("a", 48), ("b", 74):
        seen = taken(watcher, name)
        check(runner, name, seen)
        W = seen["layers.2.self_attn"].weights
        assert W.shape == (1, 4, count, count)
        received = expected(runner, name, 2)["received"]
        torch.testing.assert_close(W[...].sum(-2)[0].double(), received, atol=1e-4, rtol=0)


def test_blocks_are_read_before_they_are_given_to_another_request():
    runner = FakeRunner(layers(), blocks=5)
    watcher = EngineWatcher(runner, ServedChoices(STATISTICS))
    runner.step({"a": 31})
    for _ in range(7):
        runner.step({"a": 1})
    # The blocks of a are written to in the step that reports its end.
    runner.step({"b": 71}, finished=["a"])
    check(runner, "a", taken(watcher, "a"))
    watcher.stop()


def test_a_preempted_request_goes_on_where_it_was():
    runner = FakeRunner(layers())
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}))
    runner.step({"a": 17, "b": 5})
    for _ in range(3):
        runner.step({"a": 1, "b": 1})
    runner.step({"b": 41}, preempted=["a"])
    runner.step({"a": 20, "b": 1})
    runner.step({"a": 1})
    watcher.stop()
    seen = taken(watcher, "a", whole=False)
    assert (seen.preemptions, seen.finished, seen.first_query) == (1, False, 0)
    assert seen["layers.0.self_attn"].entropy.shape == (1, 4, 21)


def test_a_cached_prefix_has_keys_and_no_queries():
    runner = FakeRunner(layers())
    runner.step({"a": 37})
    watcher = EngineWatcher(runner, ServedChoices(STATISTICS, layers="layers.[12]"))
    runner.step({"a": 7})
    watcher.stop()
    seen = taken(watcher, "a")
    assert (seen.first_query, [*seen]) == (37, ["layers.1.self_attn", "layers.2.self_attn"])
    layer = seen["layers.1.self_attn"]
    assert (layer[0].position, layer[0].keys, layer.received.shape[-1]) == (37, 44, 44)
    wanted = expected(runner, "a", 1, 37)
    torch.testing.assert_close(layer.entropy[0].double(), wanted["entropy"], atol=5e-6, rtol=0)
    torch.testing.assert_close(layer.received[0].double(), wanted["received"], atol=5e-6, rtol=0)


def test_weights_are_kept_with_the_keys_that_a_window_has_left():
    runner = FakeRunner(layers(window=13), blocks=7)
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}, keep=True, every=5))
    runner.step({"a": 43})
    for _ in range(31):
        runner.step({"a": 1})
    watcher.stop()
    seen = taken(watcher, "a")
    W = seen["layers.2.self_attn"].weights
    assert W.shape == (1, 4, 74, 74)
    received = expected(runner, "a", 2)["received"]
    torch.testing.assert_close(W[...].sum(-2)[0].double(), received, atol=1e-5, rtol=0)


def test_finished_requests_are_dropped_by_budget_and_time():
    runner = FakeRunner(layers())
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}, budget=4000))
    for number in range(7):
        runner.step({f"r{number}": 5}, finished=[f"r{number - 1}"] if number else [])
    # Three layers, four heads, five queries of 4 bytes, and 1000 bytes for each record.
    assert [*watcher.requests] == ["r3", "r4", "r5", "r6"][-len(watcher.requests) :]
    assert sum(one.nbytes for one in watcher.requests.values() if one.ended) <= 4000
    assert watcher.forgotten == 7 - len(watcher.requests) > 0
    watcher.stop()
    runner = FakeRunner(layers())
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}, expiry=-1.0))
    runner.step({"a": 5})
    runner.step({"b": 5}, finished=["a"])
    assert [*watcher.requests] == ["b"]


def test_requests_that_failed_count_towards_the_budget():
    runner = FakeRunner(layers())
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}, budget=2999))
    for number in range(7):
        runner.step({f"r{number}": 5}, finished=[f"r{number - 1}"] if number else [])
        watcher.requests[f"r{number}"].fail("of the test.")
    assert [*watcher.requests] == ["r4", "r5", "r6"]
    watcher.stop()


def test_an_error_of_ours_loses_no_result_of_a_finished_request(monkeypatch):
    runner = FakeRunner(layers())
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}))
    runner.step({"a": 5})
    runner.step({"b": 3}, finished=["a"])

    def fail(*_args, **_kwargs):
        raise KeyError("of the test")

    monkeypatch.setattr(watcher, "_before", fail)
    runner.step({"b": 1})
    watcher.stop()
    assert taken(watcher, "a")["layers.0.self_attn"].entropy.shape == (1, 4, 5)
    assert "KeyError: 'of the test'" in taken(watcher, "b")


def test_only_requests_that_ask_are_watched_and_means_are_theirs():
    runner = FakeRunner(layers())
    choices = ServedChoices({"entropy": gh.Entropy(), "m": gh.MassOn([0])}, asked_only=True)
    watcher = EngineWatcher(runner, choices)
    runner.requests = {
        name: SimpleNamespace(
            block_ids=([],), computed=0, sampling_params=SimpleNamespace(extra_args=asked)
        )
        for name, asked in (("a", {"glasshead": 1}), ("b", None))
    }
    runner.step({"b": 3, "a": 7})
    watcher.stop()
    assert [*watcher.requests] == ["a"]
    queries, entropy, first = watcher.sums["layers.1.self_attn"]
    wanted = expected(runner, "a", 1)
    assert queries == 7
    assert entropy == pytest.approx(float(wanted["entropy"].mean(0).sum()), abs=1e-4)
    assert first == pytest.approx(float(wanted["sink"].mean(0).sum()), abs=1e-4)


@pytest.mark.parametrize("place", ["_copy", "_before", "_after", "_settler"])
def test_our_errors_end_the_record_and_not_the_engine(place, monkeypatch):
    runner = FakeRunner(layers())
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}))

    def fail(*_args, **_kwargs):
        raise KeyError("of the test")

    target = (watcher._settler, "settle") if place == "_settler" else (watcher, place)
    runner.step({"a": 5})
    monkeypatch.setattr(*target, fail)
    runner.step({"a": 3})
    watcher.stop()
    said = taken(watcher, "a")
    assert said == (
        "watch_vllm could not observe the request, which ran all the same (KeyError: 'of the "
        "test')."
    )


@pytest.mark.parametrize(("query", "token"), [(1.2, 6), (-1.0, 6)])
def test_an_output_of_another_scale_is_refused(query, token, monkeypatch):
    runner = FakeRunner(layers())
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}))
    kind = type(watcher.groups[0][0])
    usual = kind.problem
    monkeypatch.setattr(kind, "problem", lambda one, q, *more: usual(one, query * q, *more))
    runner.step({"a": 7})
    watcher.stop()
    assert f"the output of 'layers.0.self_attn' for token {token} does not" in taken(watcher, "a")


def orders() -> dict[str, torch.Tensor]:
    """Return places of 3 heads, 32 tokens and 10 features in a block, by the kind of layout."""
    h, t, d = (x.long() for x in torch.meshgrid(*map(torch.arange, (3, 32, 10)), indexing="ij"))
    return {
        "rows": (h * 32 + t) * 10 + d,
        "transposed": (h * 10 + d) * 32 + t,
        # As vLLM's in bfloat16: tiles of 16 tokens, whose features are in pairs.
        "tiles": (h * 2 + t // 16) * 160 + d // 2 * 32 + t % 16 * 2 + d % 2,
        "shuffled": torch.randperm(960, generator=torch.Generator().manual_seed(5)).view(3, 32, 10),
    }


class OrderedImpl:
    """A writer that puts keys in an order, and values in the same order after them."""

    num_kv_heads, head_size = 3, 10

    def __init__(self, order):
        self.order = order

    def do_kv_cache_update(self, layer, key, value, cache, slots):
        for token, slot in enumerate(slots.tolist()):
            block = cache[slot // 32].view(2, -1)
            for which, given in enumerate((key, value)):
                block[which, self.order[:, slot % 32]] = given[token]


@pytest.mark.parametrize("kind", orders())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_is_read_as_its_writer_wrote_it(kind, dtype):
    order = orders()[kind]
    layer = SimpleNamespace(impl=OrderedImpl(order), kv_cache=torch.zeros(7, 1920, dtype=dtype))
    layout = CacheLayout(layer, 7)
    assert all((strides is None) == (kind == "shuffled") for strides in layout.strides)
    written = torch.randn(2, 43, 3, 10).to(dtype)
    blocks = torch.tensor([5, 2])
    slots = torch.cat([blocks[0] * 32 + torch.arange(32), blocks[1] * 32 + torch.arange(11)])
    layer.impl.do_kv_cache_update(layer, *written, layer.kv_cache, slots)
    for read, given in zip((layout.keys, layout.values), written, strict=True):
        for first, last in (0, 43), (0, 1), (29, 37), (33, 41):
            found = read(layer.kv_cache, torch.stack([blocks, blocks.flip(0)]), first, last)
            assert found.shape == (2, 3, last - first, 10)
            assert torch.equal(found[0], given[first:last].transpose(0, 1))
            assert torch.equal(found[0], read(layer.kv_cache, blocks, first, last))


def test_nothing_stays_wrapped():
    runner = FakeRunner(layers())
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}))
    assert "execute_model" in vars(runner)
    watcher.stop()
    assert "execute_model" not in vars(runner)
    assert not any("forward" in vars(one.impl) for one in runner.layers.values())


def refused(**changed) -> str:
    runner = FakeRunner(layers())
    for path, value in changed.items():
        owner = runner
        *parts, last = path.split("__")
        for part in parts:
            owner = owner["layers.1.self_attn.attn"] if part == "one" else getattr(owner, part)
        setattr(owner, last, value)
    with pytest.raises(RefusalError) as error:
        EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}))
    return str(error.value)


class Graphs(SimpleNamespace):
    def has_full_cudagraphs(self):
        return True


class MLACommonImpl(CPUAttentionBackendImpl):
    pass


class OtherImpl(CPUAttentionBackendImpl):
    pass


def test_engines_that_cannot_be_followed_are_refused_in_one_sentence():
    speculation = refused(vllm_config__speculative_config=object())
    assert speculation.startswith("watch_vllm needs decoding without drafts")
    context = refused(vllm_config__parallel_config__decode_context_parallel_size=2)
    assert "without context parallel" in context
    assert "V1" in refused(input_batch=None)
    runner = FakeRunner(layers())
    runner.vllm_config.compilation_config.cudagraph_mode = Graphs()
    runner.vllm_config.device_config.device_type = "cuda"
    with pytest.raises(RefusalError, match="PIECEWISE"):
        EngineWatcher(runner, ServedChoices({}))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"attn_type": "encoder_decoder"}, "got encoder_decoder attention"),
        ({"kv_cache_dtype": "fp8_e4m3"}, "got fp8_e4m3"),
        ({"chunk_lookback": 3}, "got chunks"),
        ({"__class__": MLACommonImpl}, "got the latent vectors of MLA"),
        ({"__class__": OtherImpl}, "got OtherImpl"),
    ],
)
def test_layers_of_another_kind_are_refused_unless_they_are_omitted(changed, said):
    runner = FakeRunner(layers())
    impl = runner.layers["layers.1.self_attn.attn"].impl
    for name, value in changed.items():
        setattr(impl, name, value)
    remedy = "Start the engine" if "kv_cache_dtype" in changed else "Omit it with layers="
    with pytest.raises(RefusalError, match=f"of 'layers.1.self_attn'. {remedy}") as e:
        EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}))
    assert said in str(e.value)
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}, layers="layers.[02]"))
    assert [*watcher.layers] == ["layers.0.self_attn", "layers.2.self_attn"]


def test_heads_of_workers_are_joined_in_the_order_of_their_ranks():
    calls = [
        Call(
            (1, 2, 3),
            {"entropy": gh.Entropy()},
            {"entropy": torch.full((1, 2, 3), float(rank))},
            CallInfo(keys=3),
        )
        for rank in range(2)
    ]
    joined = joined_heads(calls)
    assert joined.shape == (1, 4, 3)
    assert joined.entropy[0, :, 0].tolist() == [0.0, 0.0, 1.0, 1.0]


def test_requests_belong_to_the_response_that_names_them():
    assert _is_of("cmpl-7-0-1f0c2a9b", "cmpl-7")
    assert not _is_of("cmpl-70-0-1f0c2a9b", "cmpl-7")


@pytest.mark.parametrize("one", [gh.Received(last=3), gh.PooledMap(2, 2)])
def test_statistics_that_do_not_follow_from_chunks_are_refused(one):
    with pytest.raises(ValueError, match="needs statistics that follow from chunks of queries"):
        checked({"x": one})


def test_what_is_no_engine_is_refused():
    with pytest.raises(TypeError, match="watch_vllm needs a vllm.LLM, got int. Pass an engine."):
        watch_vllm(7, [gh.Entropy()]).__enter__()


def test_records_are_taken_by_scores_corpora_rollout_and_files(tmp_path):
    runner = FakeRunner(layers())
    statistics = {"entropy": gh.Entropy(), "received": gh.Received()}
    watcher = EngineWatcher(runner, ServedChoices(statistics, keep=True))
    runner.step({"a": 23})
    for _ in range(5):
        runner.step({"a": 1})
    watcher.stop()
    seen = taken(watcher, "a")
    scores = gh.eviction_scores(seen, "h2o", kv_heads=2)["layers.1.self_attn"]
    wanted = expected(runner, "a", 1)["received"].view(2, 2, -1).mean(1)
    torch.testing.assert_close(scores[0].double(), wanted, atol=1e-5, rtol=0)
    assert gh.eviction_scores(seen, "snapkv", window=7)["layers.2.self_attn"].shape == (1, 2, 28)
    corpus = gh.CorpusStatistics([gh.Entropy()], positions=7)
    corpus.update(seen)
    assert corpus.compute().documents == 1
    assert gh.rollout(seen).shape == (1, 1, 28)
    seen.save(tmp_path / "seen.safetensors")
    again = gh.Seen.load(tmp_path / "seen.safetensors")
    assert torch.equal(again["layers.0.self_attn"].entropy, seen["layers.0.self_attn"].entropy)
    frame = seen.to_frame()
    assert len(frame) == 3 * 4 * 28
    assert "layers.*.self_attn" in str(seen.summary())
