"""What was seen as a table for pandas, as a summary, and as text."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from watching.small import BATCH, HEADS, LENGTH, watched


def test_a_row_for_each_layer_call_batch_row_head_and_query():
    seen, _ = watched({"entropy": gh.Entropy(), "sink": gh.MassOn([0])}, lengths=(LENGTH, 3))
    table = seen.to_frame()
    assert table.index.names == ["layer", "call", "batch", "head", "query"]
    assert list(table.columns) == ["entropy", "sink"]
    assert len(table) == 2 * BATCH * HEADS * (LENGTH + 3)
    for name, calls in seen.items():
        for place, call in enumerate(calls):
            for batch, head, query in ((0, 0, 0), (1, 2, 2)):
                row = table.loc[(name, place, batch, head, query)]
                assert row["entropy"] == call.entropy[batch, head, query].item()
                assert row["sink"] == call.sink[batch, head, query].item()


def test_queries_are_numbered_as_in_the_text():
    seen, _ = watched(lengths=(4, 1, 2), cached=True)
    table = seen.to_frame().loc["layers.1"]
    numbers = [table.loc[call].index.get_level_values("query").unique() for call in range(3)]
    assert [list(one) for one in numbers] == [[0, 1, 2, 3], [4], [5, 6]]
    joined = seen["layers.1"].entropy
    assert table.loc[(2, 1, 0, 6)]["entropy"] == joined[1, 0, 6].item()


def test_what_is_asked_for_is_a_column():
    statistics = {"top": gh.TopK(2), "received": gh.Received(), "score": gh.MaxScore()}
    seen, _ = watched(statistics, lengths=(4, 1), cached=True)
    top = seen.to_frame("top")
    assert list(top.columns) == ["top.weights", "top.keys"]
    assert top.index.names == ["layer", "call", "batch", "head", "query", "rank"]
    assert list(top.loc[("layers.0", 1, 0, 0)].index) == [(4, 0), (4, 1)]
    received = seen.to_frame(gh.Received())
    assert received.index.names == ["layer", "call", "batch", "head", "key"]
    # A call with a cache gives to all keys so far.
    assert len(received.loc[("layers.0", 1, 0, 0)]) == 5
    assert seen.to_frame("score").index.names == ["layer", "call", "batch", "head"]


class Farthest(gh.ArgMax):
    """A statistic of a user's own that names keys, as numbers with a point."""

    def finish(self, problem, *reduced):
        return super().finish(problem, *reduced).double()


def test_what_names_keys_has_no_mean_anywhere():
    asked = {"entropy": gh.Entropy(), "arg_max": gh.ArgMax(), "far": Farthest(), "top": gh.TopK(2)}
    seen, _ = watched(asked)
    summary = seen.summary()
    assert list(summary.values) == ["entropy"]
    for printed in (str(summary), summary._repr_html_()):
        assert "nats: mean over queries" in printed
        assert "key: mean over queries" not in printed
        for name in ("arg_max", "far"):
            assert f"{name} names keys, which have no mean: to_frame() has each." in printed
    for line in repr(seen["layers.0"][0]).splitlines():
        name = line.split()[0]
        assert ("mean" in line) == (name in ("entropy", "top.weights")), line
    for statistic in (gh.ArgMax(), Farthest(), gh.TopK(2)):
        with pytest.raises(ValueError, match="the keys of one text are not those of the next"):
            gh.CorpusStatistics([statistic])
    frame = seen.to_frame("arg_max", "far")
    assert (frame["arg_max"] == frame["far"]).all()


def test_what_was_not_asked_of_the_model_is_no_column():
    seen, _ = watched({"received": gh.Received(), "entropy": gh.Entropy()})
    with pytest.raises(KeyError, match=r"'sink' was not observed\. Use one of received, entropy"):
        seen.to_frame("sink")
    with pytest.raises(ValueError, match="the statistics of to_frame must have the same axes"):
        seen.to_frame("received", "entropy")
    alone, _ = watched([gh.Received()])
    with pytest.raises(
        ValueError, match="needs a statistic with one number a query.*Name one of received"
    ):
        alone.to_frame()


def test_a_summary_is_a_mean_over_the_queries_of_all_calls():
    statistics = [gh.Entropy(), gh.MaxWeight(), gh.MaxScore(), gh.Received()]
    seen, _ = watched(statistics, lengths=(LENGTH, 3))
    summary = seen.summary()
    assert summary.names == ("layers.0", "layers.1")
    assert list(summary.values) == ["entropy", "max_weight", "max_score"]
    for name, rows in (("layers.0", 0), ("layers.1", 1)):
        first, second = seen[name]
        every = torch.cat([first.entropy, second.entropy], -1).double()
        mean = every.movedim(1, 0).flatten(1).mean(1)
        torch.testing.assert_close(torch.tensor(summary.values["entropy"][rows]).double(), mean)
        largest = torch.cat([first.max_score, second.max_score]).amax(0)
        torch.testing.assert_close(torch.tensor(summary.values["max_score"][rows]), largest)
    text = str(summary)
    assert text == repr(summary)
    assert "entropy of layers.*, nats: mean over queries" in text
    assert "max_score" in text
    assert "the largest" in text
    assert "received" not in text
    assert "<table" in summary._repr_html_()


def test_queries_that_see_nothing_have_no_part_in_a_mean_of_logsumexps():
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    mask[[0, 3]] = False
    seen, _ = watched([gh.LogSumExp()], mask=mask)
    (first, _) = seen.summary().values["log_sum_exp"]
    assert all(math.isfinite(x) for x in first)
    finite = seen["layers.0"].log_sum_exp[..., [1, 2, 4, 5, 6]].double().movedim(1, 0).flatten(1)
    torch.testing.assert_close(torch.tensor(first).double(), finite.mean(1))


def test_a_summary_of_what_is_no_number_a_query_says_so():
    seen, _ = watched([gh.Received()])
    assert "Nothing that was asked is a number a query or a head." in str(seen.summary())


class Two(nn.Module):
    """Attention of different numbers of heads, and of texts without heads."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.MultiheadAttention(12, 4), nn.MultiheadAttention(12, 2)

    def forward(self, x):
        x, _ = self.wide(x, x, x)
        return self.narrow(x, x, x)[0]


def test_layers_of_different_heads_stand_in_one_table():
    model = Two()
    with gh.watch(model, [gh.Entropy()]) as seen:
        model(torch.randn(5, 2, 12))
    summary = seen.summary()
    assert [len(row) for row in summary.values["entropy"]] == [4, 2]
    assert "head 3" in str(summary)


@pytest.mark.parametrize("leading", [(), (2,)])
def test_attention_without_heads_has_one_column(leading):
    rule, x = gh.Attention(), torch.randn(*leading, 5, 7)
    with gh.watch(rule, [gh.Entropy(), gh.MaxScore()]) as seen:
        rule(x, x, x)
    summary = seen.summary()
    mean = seen[""].entropy.double().mean()
    torch.testing.assert_close(torch.tensor(summary.values["entropy"]).double(), mean[None, None])
    largest = seen[""].max_score.amax()
    torch.testing.assert_close(torch.tensor(summary.values["max_score"]), largest[None, None])


def test_a_model_that_attends_by_itself_goes_by_a_name_in_texts():
    class Bare(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    with gh.watch(model := Bare(), [gh.Entropy()]) as seen:
        model(torch.randn(1, 2, 5, 7))
    assert repr(seen) == "Seen: 1 attention\nthe model: 1 call, the last of 5 queries on 5 keys"
    assert "the model" in str(seen.summary())


def test_a_seen_tells_of_each_layer_and_of_many_the_first_and_last():
    seen, _ = watched(lengths=(LENGTH, 3))
    assert repr(seen).splitlines() == [
        "Seen: 2 attentions",
        "layers.0: 2 calls, the last of 3 queries on 3 keys",
        "layers.1: 2 calls, the last of 3 queries on 3 keys",
    ]
    many = gh.Seen({f"layers.{n}": seen["layers.0"] for n in range(13)})
    lines = repr(many).splitlines()
    assert lines[0] == "Seen: 13 attentions"
    assert [line.split(":")[0] for line in lines[1:]] == [
        "layers.0", "layers.1", "layers.2", "…", "layers.10", "layers.11", "layers.12",
    ]  # fmt: skip


def test_of_nothing_there_is_nothing_to_tell():
    seen = gh.Seen({})
    assert repr(seen) == "Seen: 0 attentions"
    assert "Nothing that was asked" in str(seen.summary())
    with pytest.raises(
        ValueError, match=r"to_frame needs a watch .* but this one observed none\. Run the m"
    ):
        seen.to_frame()


def test_a_call_tells_its_statistics_with_their_range():
    seen, _ = watched([gh.Entropy()], lengths=(4, 1), cached=True, keep="weights")
    first, second = seen["layers.0"]
    assert repr(first).splitlines()[0] == "Call of 4 queries on 4 keys"
    assert repr(first).splitlines()[1].startswith("entropy  [2, 3, 4]  0.000 … ")
    assert repr(second).splitlines()[0] == "Call of 1 query at 4 on 5 keys"
    assert repr(second).splitlines()[-1].startswith("Weights [2, 3, 1, 5], ")
