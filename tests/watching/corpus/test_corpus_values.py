"""What a corpus says is what its documents say, in whatever batches they come.

Processes that read a share each say together what one says that reads all.
"""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import corpora
import glasshead as gh
from corpora import HEADS, LENGTHS, Model, assert_equal, by_hand, documents, read
from hypothesis_profiles import examples


def test_each_statistic_is_that_of_all_documents():
    model, corpus = Model(), corpora.corpus()
    read(corpus, model, documents())
    result = corpus.compute()
    assert_equal(result, by_hand(model, documents()))
    assert result.documents == len(LENGTHS)


@examples(25)
@given(
    order=st.permutations(range(len(LENGTHS))),
    cuts=st.sets(st.integers(1, len(LENGTHS) - 1)),
    side=st.sampled_from(["left", "right"]),
)
def test_batches_and_their_padding_change_nothing(order, cuts, side):
    model, corpus, some = Model(), corpora.corpus(), documents()
    ends = [0, *sorted(cuts), len(order)]
    for begin, end in pairwise(ends):
        read(corpus, model, [some[place] for place in order[begin:end]], side)
    assert_equal(corpus.compute(), by_hand(model, some))


@pytest.mark.parametrize("side", ["left", "right"])
def test_long_batches_that_go_through_kernels_change_nothing(side):
    model, corpus, some = Model(), corpora.corpus(), documents((211, 307, 2))
    read(corpus, model, some, side)
    assert_equal(corpus.compute(), by_hand(model, some))


def test_positions_end_with_the_longest_document():
    model, corpus = Model(), corpora.corpus()
    read(corpus, model, documents((2, 3)), "right")
    assert_equal(corpus.compute(), by_hand(model, documents((2, 3))))
    assert corpus.compute()["first"]["received"].shape == (3, 3)


@pytest.mark.parametrize("side", ["left", "right", None])
def test_the_last_queries_are_those_of_each_document(side):
    model, some = Model(), documents((5, 11, 7))
    corpus = gh.CorpusStatistics([gh.Received(last=3)], positions=2)
    read(corpus, model, some, side)
    for name in HEADS:
        masses = [corpora.weights(model, one)[name][0][..., -3:, :2].sum(-2) for one in some]
        found = corpus.compute()[name]["received"]
        torch.testing.assert_close(found, torch.stack(masses).mean(0), atol=1e-5, rtol=1e-5)


def test_a_map_is_the_mean_over_documents_of_one_length():
    model, some = Model(), documents((7, 7, 7))
    corpus = gh.CorpusStatistics([gh.PooledMap(7, 7)])
    read(corpus, model, some)
    for name in HEADS:
        mean = torch.stack([corpora.weights(model, one)[name][0] for one in some]).mean(0)
        found = corpus.compute()[name]["pooled_map"]
        torch.testing.assert_close(found, mean, atol=1e-5, rtol=1e-5)


def test_documents_of_padding_alone_do_not_count():
    model, corpus, some = Model(), corpora.corpus(), documents((5, 3))
    batch, real = corpora.padded([*some, torch.zeros(5, corpora.WIDTH)], "right")
    real[2] = 0
    with torch.no_grad(), gh.watch(model, corpus.statistics_of(real)) as seen:
        model(batch, real)
    corpus.update(seen, real.bool())
    assert_equal(corpus.compute(), by_hand(model, some))
    assert corpus.compute().documents == 2


def test_queries_that_see_nothing_count_as_zero_but_for_their_logsumexp():
    corpus = gh.CorpusStatistics(
        [gh.MaxWeight(), gh.LogSumExp(), gh.DistanceHistogram([0, 1, math.inf])]
    )
    zeros = torch.zeros(1, 2, 4, 3)
    holder = _Blind()
    with gh.watch(holder, corpus.statistics) as seen:
        holder(zeros)
    corpus.update(seen)
    result = corpus.compute()
    (own,) = (result[layer] for layer in result)
    # Of 4 queries the first sees nothing; the others 1, 2 and 3 keys, none of them their own.
    right = {
        "max_weight": [(1 + 1 / 2 + 1 / 3) / 4] * 2,
        "log_sum_exp": [(math.log(2) + math.log(3)) / 3] * 2,
        "distance_histogram": [[0.0, 1.0]] * 2,
    }
    for name, value in right.items():
        torch.testing.assert_close(own[name], torch.tensor(value).double())


class _Blind(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = gh.Attention(mask=gh.causal(offset=-1))

    def forward(self, x):
        return self.attention(x, x, x)


def test_a_text_that_grows_is_one_document():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    size = {"vocab_size": 31, "hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(num_attention_heads=3, initializer_range=0.4, **size)
    model = transformers.LlamaForCausalLM(config).eval()
    tokens = torch.randint(0, 31, (2, 11))
    grown, whole = corpora.corpus(), corpora.corpus()
    with torch.no_grad():
        with gh.watch(model, grown.statistics) as seen:
            cache = transformers.DynamicCache(config=config)
            for part in tokens.split([6, 1, 4], 1):
                model(part, past_key_values=cache, use_cache=True)
        grown.update(seen)
        with gh.watch(model, whole.statistics) as seen:
            model(tokens)
        whole.update(seen)
    right = whole.compute()
    assert_equal(grown.compute(), {layer: right[layer] for layer in right})
    assert grown.compute().documents == 2


def test_several_texts_of_one_watch_all_count():
    model, corpus, some = Model(), corpora.corpus(), documents((5, 7))
    with torch.no_grad(), gh.watch(model, corpus.statistics) as seen:
        for document in some:
            model(document[None])
    corpus.update(seen)
    assert_equal(corpus.compute(), by_hand(model, some))
    assert corpus.compute().documents == 2


def test_what_else_was_watched_does_not_matter():
    model, some = Model(), documents((5,))
    corpus = gh.CorpusStatistics([gh.Entropy()])
    with torch.no_grad(), gh.watch(model, {**corpus.statistics, "top": gh.TopK(2)}) as seen:
        model(some[0][None])
    corpus.update(seen)
    right = {name: {"entropy": own["entropy"]} for name, own in by_hand(model, some).items()}
    assert_equal(corpus.compute(), right)


def test_layers_may_come_later():
    model, corpus, some = Model(), corpora.corpus(), documents((5, 7))
    for document, layers in zip(some, ("second", None), strict=True):
        with torch.no_grad(), gh.watch(model, corpus.statistics, layers=layers) as seen:
            model(document[None])
        corpus.update(seen)
    first, both = by_hand(model, some[1:])["first"], by_hand(model, some)["second"]
    assert_equal(corpus.compute(), {"second": both, "first": first})


# Where the second process begins; at the end it reads nothing.
CUTS = (3, 5, len(LENGTHS))


def told(result):
    return {layer: dict(result[layer]) for layer in result}, result.documents


def shared(rank):
    """What is computed where each has read some of the documents."""
    found = []
    for cut in CUTS:
        some, corpus = documents(), corpora.corpus()
        read(corpus, Model(), some[cut:] if rank else some[:cut])
        found.append(told(corpus.compute()))
    return found


def layers_apart(rank):
    """Where each has seen one layer alone; and what is its own again, after that."""
    model, some, corpus = Model(), documents((5, 7)), corpora.corpus()
    with torch.no_grad(), gh.watch(model, corpus.statistics, layers=list(HEADS)[rank]) as seen:
        model(some[0][None])
    corpus.update(seen)
    both = told(corpus.compute())
    own = corpora.corpus(sync_on_compute=False)
    own.merge_state(corpus)
    return both, told(own.compute())


def refusals(rank):
    """What is not alike in both, or nowhere."""
    said = []
    maps = gh.CorpusStatistics([gh.PooledMap(2, 2)])
    read(maps, Model(), documents((5, 7))[rank : rank + 1])
    empty = gh.CorpusStatistics([gh.Received(), gh.MaxScore()])
    empty._update_count = 1
    for corpus in (maps, empty):
        try:
            corpus.compute()
        except ValueError as error:
            said.append(str(error))
    return said


def on_each(rank, folder):
    return [each(rank) for each in (shared, layers_apart, refusals)]


@pytest.fixture(scope="module")
def found(of_ranks, tmp_path_factory):
    """What each process says of all of it."""
    return of_ranks(on_each, tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CUTS)))
def test_they_say_what_one_says(found, case):
    alone = corpora.corpus()
    read(alone, Model(), documents())
    right = alone.compute()
    for cases, _, _ in found:
        values, count = cases[case]
        assert_equal(values, {layer: right[layer] for layer in right}, atol=1e-12, rtol=1e-12)
        assert count == len(LENGTHS)


@pytest.mark.slow
def test_layers_that_one_has_not_seen_are_those_of_the_other(found):
    right = by_hand(Model(), documents((5, 7))[:1])
    for name, (_, (both, own), _) in zip(HEADS, found, strict=True):
        assert_equal(both[0], right)
        assert_equal(own[0], {name: right[name]})


@pytest.mark.slow
def test_what_does_not_fit_is_refused_by_all(found):
    for _, _, (maps, empty) in found:
        assert "'first' read texts of 5 tokens and 7 tokens" in maps
        assert "document, got none. Call update first" in empty
