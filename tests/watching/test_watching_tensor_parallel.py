"""In tensor parallel each rank tells its heads, and all ranks together what one process sees."""

import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import forked
import glasshead as gh
from glasshead.watching import UnseenError
from scripts import ROOT
from watching.ranks import RANKS

transformers = pytest.importorskip("transformers")

# The quick sibling is test_watching_shards.py.
pytestmark = pytest.mark.slow

# An even vocabulary: two ranks share the logits.
HEADS, KV_HEADS, WIDTH, LENGTH, VOCAB = 6, 2, 7, 13, 106
TOKENS = torch.arange(2 * LENGTH).reshape(2, LENGTH) * 29 % VOCAB
LAYER = "model.layers.1.self_attn"
STATISTICS = [
    gh.Entropy(),
    gh.Received(),
    gh.TopK(3),
    gh.MaxScore(),
    gh.PooledMap(3, 2),
    gh.DistanceHistogram([0, 1, 4, float("inf")]),
]
# Of which heads each rank computes 0, 1 and 2, or 3, 4 and 5.
REQUESTS = {"all": None, "of both": [5, 0], "of one": [4]}
CHANGES = {
    "zero": gh.ZeroAblation(heads=[4]),
    "β of two queries": gh.ScaleBeta(0.5, heads=[1, 3], queries=[2, 11]),
    "keys": gh.ForbidKeys([0], heads=[0, 5]),
    "all heads": gh.ZeroAblation(queries=[5]),
}


def llama(folder, **options):
    return transformers.LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float64, **options
    ).eval()


def tensors(value):
    """The tensors of a statistic's value."""
    return [value] if isinstance(value, torch.Tensor) else list(value)


class Packed(nn.Module):
    """Attention with one projection for queries, keys and values of the heads of a rank."""

    def __init__(self):
        super().__init__()
        width = HEADS * WIDTH
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        heads = (
            project(x).unflatten(-1, (-1, WIDTH)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        return self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


def packed():
    torch.manual_seed(3)
    return nn.Sequential(Packed(), Packed()).double(), torch.randn(2, 5, HEADS * WIDTH).double()


def watched(model, *inputs, **options):
    """What is seen of a pass, with the context of its heads, and whether it ran as unwatched."""
    with torch.no_grad():
        plain = model(*inputs)
        with gh.watch(model, STATISTICS, keep="weights", **options) as seen:
            output = model(*inputs)
        with gh.watch(model, keep="context", **options) as kept:
            model(*inputs)
    first, second = (getattr(one, "logits", one) for one in (plain, output))
    return seen, kept, torch.equal(first, second)


def on_each(rank, folder):
    """All that a rank finds, as starting one takes longer than its work."""
    model = llama(folder, tp_plan="auto")
    return {
        "seen": {name: seen_by_rank(model, heads) for name, heads in REQUESTS.items()},
        "generated": generated(model, gather=True),
        "gradients": gradients(model, gather=True),
        "changed": {name: changed(model, one) for name, one in CHANGES.items()},
        "refused": refused(model),
        "by hand": by_parallelize_module(),
        "elsewhere": sharded_in_another_way(),
        "corpus": corpus(model),
        "whole": whole_heads(folder / "phi3"),
        "plain": {heads: plain_weights(heads) for heads in (3, 6, 2)},
    }


def seen_by_rank(model, heads):
    seen, kept, same = watched(model, TOKENS, heads=heads)
    whole, contexts = seen.gather(), kept.gather()
    frame = whole.to_frame("entropy")
    return {
        "same": same,
        "heads": seen[LAYER][0].heads,
        "rows": sorted(set(seen.to_frame("entropy").index.get_level_values("head"))),
        "values": [x for one in whole[LAYER][0].values.values() for x in tensors(one)],
        "weights": whole[LAYER].weights.dense(),
        "context": contexts[LAYER].context,
        "rollout": gh.rollout(whole),
        "frame": (list(frame.index), torch.tensor(frame.to_numpy())),
        "again": [one.shards for one in whole[LAYER]],
    }


def generated(model, *, gather):
    with gh.watch(model, [gh.Entropy(), gh.Received()], keep="weights") as seen:
        tokens = model.generate(
            TOKENS, max_new_tokens=5, min_new_tokens=5, do_sample=False, pad_token_id=0
        )
    seen = seen.gather() if gather else seen
    layer = seen[LAYER]
    return tokens, layer.entropy, layer.received, layer.weights.dense()


def gradients(model, *, gather):
    with gh.watch(model, keep="gradients") as seen:
        logits = model(TOKENS).logits
    logits[:, -1, 7].sum().backward()
    model.zero_grad()
    seen = seen.gather() if gather else seen
    return seen[LAYER].gradients.dense(), gh.gradient_rollout(seen)


def changed(model, change):
    with torch.no_grad(), gh.intervene(model, {LAYER: change}):
        return model(TOKENS).logits


def refused(model):
    """What each function says of a part of the heads."""
    from glasshead.tasks.tokenizers import words

    with torch.no_grad(), gh.watch(model, [gh.Entropy()], keep="weights") as seen:
        model(TOKENS)
    corpus = gh.CorpusStatistics([gh.Entropy()])
    tokenizer = words(["the cat"], vocab_size=7)
    functions = {
        "rollout": lambda: gh.rollout(seen),
        "head_roles": lambda: gh.head_roles(seen, TOKENS),
        "eviction_scores": lambda: gh.eviction_scores(seen, "h2o"),
        "image": lambda: seen[LAYER].image(0, grid=(3, 4)),
        "update": lambda: corpus.update(seen),
        "observe_texts": lambda: gh.observe_texts(
            model, "the cat", [gh.Entropy()], tokenizer=tokenizer
        ),
        "heads": lambda: changed(model, gh.ZeroAblation(heads=[6])),
    }
    said = {}
    for name, function in functions.items():
        try:
            function()
        except ValueError as error:
            said[name] = str(error)
    return said


def whole_heads(folder):
    """The heads of a model whose projections are sharded, and gathered before they attend."""
    model = transformers.Phi3ForCausalLM.from_pretrained(
        folder, dtype=torch.float64, tp_plan="auto"
    )
    sharded = type(model.model.layers[1].self_attn.qkv_proj.weight).__name__ == "DTensor"
    with torch.no_grad(), gh.watch(model.eval(), [gh.Entropy()]) as seen:
        model(TOKENS)
    return sharded, seen[LAYER][0].shards, seen[LAYER].entropy


def by_parallelize_module():
    """A model of one's own, sharded by PyTorch."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model, x = packed()
    plan = {name: ColwiseParallel() for name in ("query", "key", "value")}
    mesh = init_device_mesh("cpu", (1, RANKS), mesh_dim_names=("data", "model"))
    for layer in model:
        parallelize_module(layer, mesh["model"], {**plan, "out": RowwiseParallel()})
    seen, _, same = watched(model, x)
    return same, seen["1"][0].heads, seen.gather()["1"].weights.dense()


class Some(nn.Module):
    """Some heads of a model, with nothing but its config to tell how many it has."""

    def __init__(self, heads):
        super().__init__()
        self.heads, self.config = heads, SimpleNamespace(num_attention_heads=HEADS)
        self.project = nn.Linear(3, heads * WIDTH)

    def forward(self, x):
        query = self.project(x).unflatten(-1, (self.heads, WIDTH)).transpose(1, 2)
        return F.scaled_dot_product_attention(query, query, query)


def plain_weights(heads):
    """As transformers before 5.3 has its shards, or one of several heads of a rank."""
    from torch.distributed.device_mesh import init_device_mesh

    model = nn.Sequential(Some(heads))
    mesh = init_device_mesh("cpu", (1, RANKS), mesh_dim_names=("fsdp", "tp"))
    model._tp_size, model._device_mesh = RANKS, mesh  # type: ignore[reportArgumentType]
    try:
        with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
            model(torch.randn(1, 5, 3))
    except UnseenError as error:
        return str(error)
    return seen["0"][0].heads, seen.gather()["0"].entropy.shape


def sharded_in_another_way():
    """Heads of which nothing says whether they are those of this rank or all."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    model, x = packed()
    mesh = init_device_mesh("cpu", (RANKS,))
    told = nn.Parameter(distribute_tensor(torch.ones(34, 3), mesh, [Shard(0)]))
    model[1].register_parameter("told", told)
    try:
        with torch.no_grad(), gh.watch(model, [gh.Entropy()]):
            model(x)
    except UnseenError as error:
        return str(error)


def corpus(model):
    """A corpus of which both ranks of the model read the same."""
    statistics = [gh.Entropy(), gh.Received()]
    sums = gh.CorpusStatistics(statistics, positions=LENGTH, sync_on_compute=False)
    for batch in TOKENS[:, None]:
        with torch.no_grad(), gh.watch(model, sums.statistics) as seen:
            model(batch)
        sums.update(seen.gather())
    result = sums.compute()
    return result.documents, result[LAYER].entropy, result[LAYER].received


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("llama")
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HEADS * WIDTH,
        intermediate_size=34,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=WIDTH + 1,
        initializer_range=0.3,
    )
    transformers.LlamaForCausalLM(config).double().save_pretrained(place)
    packed = transformers.Phi3Config(
        vocab_size=VOCAB,
        hidden_size=HEADS * (WIDTH + 1),
        intermediate_size=34,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.3,
    )
    transformers.Phi3ForCausalLM(packed).double().save_pretrained(place / "phi3")
    return place


@pytest.fixture(scope="module")
def ranks(of_ranks, folder):
    return of_ranks(on_each, folder)


@pytest.fixture(scope="module")
def model(folder):
    return llama(folder)


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("request_", REQUESTS)
def test_all_ranks_together_see_what_one_process_sees(ranks, model, request_):
    seen, kept, _ = watched(model, TOKENS, heads=REQUESTS[request_])
    expected = [x for one in seen[LAYER][0].values.values() for x in tensors(one)]
    frame = seen.to_frame("entropy")
    for rank in ranks:
        found = rank["seen"][request_]
        assert found["same"]
        assert found["again"] == [()]
        assert_close(found["values"], expected)
        assert_close(found["weights"], seen[LAYER].weights.dense())
        assert_close(found["context"], kept[LAYER].context)
        assert_close(found["rollout"], gh.rollout(seen))
        index, numbers = found["frame"]
        assert index == list(frame.index)
        assert_close(numbers, torch.tensor(frame.to_numpy()))


@pytest.mark.parametrize(
    ("request_", "heads"),
    [("all", [(0, 1, 2), (3, 4, 5)]), ("of both", [(0,), (5,)]), ("of one", [(), (4,)])],
)
def test_each_rank_tells_the_numbers_of_its_heads(ranks, request_, heads):
    assert [rank["seen"][request_]["heads"] for rank in ranks] == heads
    assert [tuple(rank["seen"][request_]["rows"]) for rank in ranks] == heads


def test_a_text_that_grows_is_gathered_step_by_step(ranks, model):
    tokens, *expected = generated(model, gather=False)
    for rank in ranks:
        found, *values = rank["generated"]
        assert torch.equal(found, tokens)
        assert_close(values, expected)


def test_gradients_are_gathered(ranks, model):
    expected = gradients(model, gather=False)
    for rank in ranks:
        assert_close(rank["gradients"], expected)


@pytest.mark.parametrize("change", CHANGES)
def test_an_intervention_changes_the_heads_that_it_names(ranks, model, change):
    expected = changed(model, CHANGES[change])
    assert not torch.allclose(expected, model(TOKENS).logits)
    for rank in ranks:
        assert_close(rank["changed"][change], expected)


@pytest.mark.parametrize(
    "function", ["rollout", "head_roles", "eviction_scores", "image", "update"]
)
def test_what_takes_all_heads_refuses_a_part(ranks, function):
    for rank in ranks:
        assert rank["refused"][function] == (
            f"{function} needs all heads of an attention, but this rank computes only a part of "
            f"them for 'model.layers.{1 if function == 'image' else 0}.self_attn'. Pass "
            f"seen.gather(), which all ranks must call."
        )


def test_a_head_that_no_rank_has_is_refused_by_all(ranks):
    for rank in ranks:
        assert (
            "heads must be in 0..5 for 'model.layers.1.self_attn', got 6"
            in rank["refused"]["heads"]
        )


def test_a_model_that_pytorch_shards_is_seen_as_well(ranks):
    model, x = packed()
    seen, _, _ = watched(model, x)
    for place, rank in enumerate(ranks):
        same, heads, weights = rank["by hand"]
        assert same
        assert heads == tuple(range(3 * place, 3 * place + 3))
        assert_close(weights, seen["1"].weights.dense())


def test_heads_that_each_rank_computes_all_of_are_whole(ranks, folder):
    model = transformers.Phi3ForCausalLM.from_pretrained(folder / "phi3", dtype=torch.float64)
    with torch.no_grad(), gh.watch(model.eval(), [gh.Entropy()]) as seen:
        model(TOKENS)
    for rank in ranks:
        sharded, shards, entropy = rank["whole"]
        assert (sharded, shards) == (True, ())
        assert_close(entropy, seen[LAYER].entropy)


def test_weights_that_are_not_dtensors_are_told_by_the_config(ranks):
    for place, rank in enumerate(ranks):
        found = rank["plain"]
        assert found[3] == (tuple(range(3 * place, 3 * place + 3)), (1, HEADS, 5))
        assert found[6] == (None, (1, HEADS, 5))
        assert "the weights of Some at '0' are sharded in another way" in found[2]


def test_observe_texts_refuses_a_model_that_ranks_share(ranks):
    for rank in ranks:
        assert rank["refused"]["observe_texts"] == (
            "observe_texts needs the whole LlamaForCausalLM in each rank, got one whose heads the "
            "ranks share. Watch it with gh.watch, and give a CorpusStatistics seen.gather()."
        )


def test_weights_that_are_sharded_in_another_way_are_refused(ranks):
    for rank in ranks:
        assert rank["elsewhere"] == (
            "watch needs projections that are sharded by heads, but the weights of Packed at '1' "
            "are sharded in another way. Shard them with ColwiseParallel and RowwiseParallel, or "
            "exclude Packed at '1' with layers=."
        )


def test_a_corpus_takes_what_was_gathered(ranks, model):
    expected = corpus_of_one(model)
    for rank in ranks:
        documents, *values = rank["corpus"]
        assert documents == len(TOKENS)
        assert_close(values, expected)


def corpus_of_one(model):
    sums = gh.CorpusStatistics([gh.Entropy(), gh.Received()], positions=LENGTH)
    for batch in TOKENS[:, None]:
        with torch.no_grad(), gh.watch(model, sums.statistics) as seen:
            model(batch)
        sums.update(seen)
    result = sums.compute()
    return [result[LAYER].entropy, result[LAYER].received]


def test_the_script_of_the_page_runs_as_it_stands(folder, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    page = (ROOT / "docs" / "how-to" / "ranks.md").read_text(encoding="utf-8")
    script = re.search(r"`heads\.py`:\n\n```python\n(.*?)```", page, re.DOTALL)[1]
    (tmp_path / "heads.py").write_text(script)
    (tmp_path / "models").mkdir()
    place = tmp_path / "models" / "llama"
    transformers.LlamaForCausalLM.from_pretrained(folder).save_pretrained(place)
    words = {word: number for number, word in enumerate(("Once", "upon", "a", "time"))}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(words))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    options = {"model_input_names": ["input_ids", "attention_mask"]}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **options).save_pretrained(place)
    for rank, heads in zip(
        forked.ranks(RANKS, "heads.py", cwd=tmp_path), ("(0, 1, 2)", "(3, 4, 5)"), strict=True
    ):
        done = rank.ended()
        assert done.returncode == 0, done.stderr
        whole = "torch.Size([1, 6, 4]) torch.Size([1, 1, 4])"
        assert sorted(done.stdout.splitlines()) == [heads, whole]
