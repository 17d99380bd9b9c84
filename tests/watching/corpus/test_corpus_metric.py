"""A corpus is a metric as torchmetrics has them."""

import copy
import pickle

import pytest
import torch
from torchmetrics import Metric, MetricCollection

import corpora
import glasshead as gh
from corpora import HEADS, Model, assert_equal, by_hand, documents, read


def test_it_is_a_metric_and_can_stand_in_a_collection():
    model, some = Model(), documents((5, 7))
    corpus = gh.CorpusStatistics([gh.Entropy()])
    assert isinstance(corpus, Metric)
    collection = MetricCollection({"attention": corpus})
    for document in some:
        with torch.no_grad(), gh.watch(model, corpus.statistics) as seen:
            model(document[None])
        collection.update(seen)
    found = collection.compute()["attention"]
    right = {name: {"entropy": own["entropy"]} for name, own in by_hand(model, some).items()}
    assert_equal(found, right)


def test_reset_begins_anew():
    model, corpus = Model(), corpora.corpus()
    read(corpus, model, documents((5, 7)))
    corpus.reset()
    read(corpus, model, documents((3,)))
    assert_equal(corpus.compute(), by_hand(model, documents((3,))))


def test_forward_tells_of_the_batch_and_adds_it():
    model, corpus, some = Model(), corpora.corpus(), documents((5, 7, 3))
    for document in some:
        with torch.no_grad(), gh.watch(model, corpus.statistics) as seen:
            model(document[None])
        assert_equal(corpus(seen), by_hand(model, [document]))
    assert_equal(corpus.compute(), by_hand(model, some))


@pytest.mark.parametrize("kept", [0, 2])
def test_states_of_others_can_be_merged(kept):
    model, some = Model(), documents((5, 7, 3))
    one, other = corpora.corpus(), corpora.corpus()
    read(one, model, some[:kept])
    read(other, model, some[kept:])
    one.merge_state(other)
    if not kept:
        one._update_count = 1
    assert_equal(one.compute(), by_hand(model, some))
    assert_equal(other.compute(), by_hand(model, some[kept:]))


@pytest.mark.parametrize("made", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_goes_on_by_itself(made):
    model, corpus, some = Model(), corpora.corpus(), documents((5, 7))
    read(corpus, model, some[:1])
    other = made(corpus)
    read(other, model, some[1:])
    assert_equal(other.compute(), by_hand(model, some))
    assert_equal(corpus.compute(), by_hand(model, some[:1]))


def test_a_persistent_one_is_part_of_a_checkpoint():
    model, corpus, some = Model(), corpora.corpus(), documents((5, 7))
    read(corpus, model, some[:1])
    assert corpus.state_dict() == {}
    corpus.persistent(True)
    other = corpora.corpus()
    other.persistent(True)
    other.load_state_dict(corpus.state_dict())
    read(other, model, some[1:])
    assert_equal(other.compute(), by_hand(model, some))


def test_what_was_computed_does_not_change_later():
    model, corpus, some = Model(), corpora.corpus(), documents((5, 7))
    read(corpus, model, some[:1])
    result = corpus.compute()
    assert corpus.compute() is result
    read(corpus, model, some[1:])
    assert_equal(result, by_hand(model, some[:1]))


def test_statistics_of_padding_can_be_asked_in_vain():
    corpus = corpora.corpus()
    assert corpus.statistics_of(torch.ones(2, 3, dtype=torch.long)) == corpus.statistics


def refused(update, sentence, kind=ValueError):
    with pytest.raises(kind, match=sentence) as caught:
        update()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("statistics", "options", "kind", "sentence"),
    [
        ([], {}, ValueError, "needs statistics such as .*, got none"),
        ([gh.TopK(2)], {}, ValueError, r"got TopK\(k=2\), but the keys of one text are not those"),
        ([gh.ArgMax()], {}, ValueError, r"got ArgMax\(\), but the keys of one text are not those"),
        ([gh.Entropy], {}, TypeError, "got the class Entropy"),
        ([gh.Entropy()], {"positions": 0}, ValueError, "positions"),
        ([gh.Entropy()], {"position": 3}, ValueError, "Unexpected keyword arguments: `position`"),
    ],
)
def test_what_adds_up_to_nothing_is_refused(statistics, options, kind, sentence):
    refused(lambda: gh.CorpusStatistics(statistics, **options), sentence, kind)


def seen_of(model, statistics, batch, real=None):
    with torch.no_grad(), gh.watch(model, statistics) as seen:
        model(batch, real)
    return seen


def test_nothing_read_is_nothing_to_compute():
    with pytest.warns(UserWarning, match="before the ``update``"):
        refused(corpora.corpus().compute, "compute needs what was seen of some documents, but th")


def test_what_was_not_watched_for_the_corpus_is_refused():
    model, corpus, batch = Model(), corpora.corpus(), documents((5,))[0][None]
    refused(lambda: corpus.update([1]), "update needs what `gh.watch` has seen, got", TypeError)
    seen = seen_of(model, [gh.Entropy()], batch)
    refused(lambda: corpus.update(seen), r"as gh.watch\(model, corpus.statistics\), but 'largest'")
    seen = seen_of(model, corpora.STATISTICS, batch)
    refused(lambda: corpus.update(seen), "but 'distances' of 'first' is DistanceHistogram")


@pytest.mark.filterwarnings("ignore:watch saw keys of .* as of padding")
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_that_was_watched_as_if_it_were_real_is_refused(side):
    model = Model()
    batch, real = corpora.padded(documents((5, 7)), side)
    for statistic in (gh.Received(), gh.MaxScore(), gh.DistanceHistogram([0, 1])):
        corpus = gh.CorpusStatistics([statistic])
        seen = seen_of(model, corpus.statistics, batch, real)
        refused(lambda: corpus.update(seen, real), r"gh.watch\(model, corpus.statistics_of\(atte")  # noqa: B023
        other = seen_of(model, corpus.statistics_of(real.flip(0)), batch, real)
        refused(lambda: corpus.update(other, real), r"corpus.statistics_of\(attention_mask\)")  # noqa: B023
    corpus = gh.CorpusStatistics([gh.MassOn([0])])
    seen = seen_of(model, corpus.statistics, batch, real)
    if side == "left":
        refused(lambda: corpus.update(seen, real), r"corpus.statistics_of\(attention_mask\)")
    else:
        corpus.update(seen, real)
    corpus = gh.CorpusStatistics([gh.PooledMap(2, 2)])
    refused(
        lambda: corpus.statistics_of(real), "needs texts of one length, but this batch has texts"
    )


def test_a_mask_that_does_not_fit_is_refused_and_nothing_is_added():
    model, corpus = Model(), corpora.corpus()
    batch, real = corpora.padded(documents((5, 7)), "right")
    seen = seen_of(model, corpus.statistics_of(real), batch, real)
    for mask, sentence, kind in (
        (
            real.float(),
            "attention_mask must be a tensor of whole numbers or booleans, got ",
            TypeError,
        ),
        (real.tolist(), "must be a tensor of whole numbers or booleans, got list", TypeError),
        (real + 1, r"1 or 0 for each token, \[batch, tokens\], got \[2, 7\]", ValueError),
        (real[None], r"1 or 0 for each token, \[batch, tokens\], got \[1, 2, 7\]", ValueError),
        (real[:, 1:], r"that 'first' saw, \[2, 7\], got \[2, 6\]", ValueError),
    ):
        refused(lambda: corpus.update(seen, mask), sentence, kind)  # noqa: B023
    corpus.update(seen, real)
    assert_equal(corpus.compute(), by_hand(model, documents((5, 7))))


@pytest.mark.filterwarnings("ignore:watch saw keys of .* as of padding")
def test_a_mask_tells_of_one_text_alone():
    model, corpus = Model(), gh.CorpusStatistics([gh.Entropy()])
    batch, real = corpora.padded(documents((5, 7)), "right")
    with torch.no_grad(), gh.watch(model, corpus.statistics) as seen:
        model(batch, real)
        model(batch, real)
    refused(lambda: corpus.update(seen, real), "one text per watch, but 'first' saw several. Open")


def test_a_mask_of_other_keys_is_refused_while_the_model_runs():
    model, corpus = Model(), gh.CorpusStatistics([gh.Received()])
    batch, real = corpora.padded(documents((5, 7)), "right")
    with pytest.raises(ValueError, match=r"but it is \[2, 7\] where an attention has batch \[2\]"):
        seen_of(model, corpus.statistics_of(real), batch[:, :6])


def test_documents_that_are_too_short_are_refused():
    model, corpus = Model(), gh.CorpusStatistics([gh.Received(last=4)])
    batch, real = corpora.padded(documents((3, 7)), "right")
    seen = seen_of(model, corpus.statistics_of(real), batch, real)
    refused(lambda: corpus.update(seen, real), "at least 4 queries, but a document has 3. Ask for")


def test_maps_of_unlike_lengths_and_layers_of_unlike_heads_are_refused():
    corpus = gh.CorpusStatistics([gh.PooledMap(2, 2)])
    read(corpus, Model(), documents((5,)))
    with pytest.raises(ValueError, match=r"'first' had one of 5 tokens and one of 7 tokens\. Cut"):
        read(corpus, Model(), documents((7,)))
    other = Model()
    other.first = corpora.Heads(5)
    with pytest.raises(
        ValueError, match=r"'first' has 3 heads and 5\. Use another CorpusStatistic"
    ):
        read(corpus, other, documents((5,)))


def test_a_result_is_had_by_name_as_a_table_and_from_a_file(tmp_path):
    model, corpus, some = Model(), corpora.corpus(), documents((5, 7))
    read(corpus, model, some)
    result = corpus.compute()
    frame = result.to_frame()
    assert frame.index.names == ["layer", "head"]
    assert len(frame) == sum(HEADS.values())
    assert frame.loc[("second", 1), "entropy"] == result["second"]["entropy"][1].item()
    assert set(frame) == {"entropy", "largest", "sink", "distance", "normalizer", "score"}
    received = result.to_frame(gh.Received())
    assert received.index.names == ["layer", "head", "key"]
    assert received.loc[("first", 2, 4), "received"] == result["first"]["received"][2, 4].item()
    assert "second" in str(result.summary())
    result.save(tmp_path / "corpus.safetensors")
    again = type(result).load(tmp_path / "corpus.safetensors")
    assert_equal(again, {layer: result[layer] for layer in result}, atol=0, rtol=0)
    assert (again.statistics, again.documents) == (result.statistics, 2)
    with pytest.raises(KeyError, match=r"'third' was not observed\. Use one of first, second"):
        result["third"]
    with pytest.raises(KeyError, match=r"'top' was not requested\. Use one of entropy"):
        result.to_frame("top")
    with pytest.raises(ValueError, match="needs statistics of the same axes, got ent"):
        result.to_frame("entropy", "received")
    with pytest.raises(ValueError, match="stacked needs layers of one shape, but 'entropy' is"):
        result.stacked("entropy")
