"""Every layout of a trace, long and wide ones too."""

import json

import pytest
import torch
from explanation_told import all_text, sides, traced

import glasshead as gh


def test_heads_and_batch_are_chosen_by_index():
    trace = traced(leading=(2, 3), mask=gh.causal())
    explanation = gh.explain(trace, index=(1, 2), query=3)
    assert explanation.index == (1, 2)
    torch.testing.assert_close(explanation["scores"].data["scores"], trace.scores[1, 2])
    torch.testing.assert_close(explanation["heads"].data["weights"], trace.weights[1, :, 3])
    assert "3 heads; explained above is head 2" in explanation["heads"].intro[0]


def test_one_head_has_no_section_of_heads():
    assert "heads" not in {step.name for step in gh.explain(traced(leading=(2, 1))).steps}


def test_grouped_heads_read_the_right_keys():
    query, key = torch.rand(1, 6, 4, 3), torch.rand(1, 2, 4, 3)
    trace = gh.Attention(score=gh.Dot()).trace(query, key, key)
    for head in range(6):
        data = gh.explain(trace, index=(0, head))["inputs"].data
        torch.testing.assert_close(data["keys"], key[0, head // 3])
        torch.testing.assert_close(data["queries"] @ data["keys"].T, trace.scores[0, head])


def test_a_batch_without_heads_has_one_leading_axis():
    trace = traced(leading=(3,))
    torch.testing.assert_close(
        gh.explain(trace, index=2)["weights"].data["weights"], trace.weights[2]
    )


def test_cross_attention_has_words_of_two_kinds():
    trace = traced(queries=2, keys=3, mask=gh.padding(2))
    explanation = gh.explain(trace, tokens=["le", "chat"], keys=["the", "cat", "."], query="le")
    assert "two different lists" in explanation["opening"].intro[0]
    assert [line[:6] for line in explanation["scores"].numbers] == ["s(the)", "s(cat)", "s(.)  "]
    assert explanation.keys == ("the", "cat", ".")


def test_queries_that_stand_after_cached_keys_are_told():
    explanation = gh.explain(traced(queries=2, keys=5, mask=gh.causal()), tokens=["d", "e"])
    assert "“e” sees all of the keys; some other words do not." in explanation["masked"].intro
    assert explanation.keys == ("1", "2", "3", "4", "5")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_told_as_it_was_computed(dtype):
    x = torch.rand(4, 3, dtype=dtype)
    trace = gh.Attention().trace(x, x, x)
    explanation = gh.explain(trace)
    assert trace.weights.dtype == torch.float32
    torch.testing.assert_close(explanation["weights"].data["weights"], trace.weights)
    json.dumps(explanation.to_dict(), allow_nan=False)
    assert all_text(explanation)


def test_inputs_with_gradients_are_told():
    x = torch.rand(3, 2, requires_grad=True)
    assert all_text(gh.explain(gh.Attention(score=gh.Additive(2)).trace(x, x, x)))


def test_what_fills_padding_does_not_spoil_what_is_written():
    x = torch.rand(4, 3)
    x[3] = torch.nan
    explanation = gh.explain(gh.Attention().trace(x, x, x, mask=gh.padding(3)), query=0)
    *seen, filled = explanation["scores"].numbers
    assert "NaN" not in "".join(seen)
    assert filled.endswith("·0 = 0")
    assert "hidden from every query" in all_text(explanation)


def test_vectors_without_numbers_are_told():
    empty = torch.zeros(3, 0)
    explanation = gh.explain(gh.Attention().trace(empty, empty, empty))
    assert explanation["scores"].numbers[0] == "s(1) = 0 = 0"
    assert all_text(explanation)


@pytest.mark.parametrize("width", [20, 30, 60, 120])
def test_a_long_text_keeps_within_the_width_and_within_reason(width):
    trace = traced(leading=(1, 3), queries=60, keys=60, dim=32, value_dim=32, mask=gh.causal())
    explanation = gh.explain(trace, index=(0, 1), query=40)
    lines = explanation.text(width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < 420 * max(1, 60 / width)


def test_tables_of_many_keys_add_up_the_others():
    trace = traced(queries=40, keys=40)
    explanation = gh.explain(trace, query=7)
    table = next(part for part in explanation["weights"].figures if hasattr(part, "rows"))
    assert len(table.rows) == 12
    *shown, others, together = table.rows
    assert others[0] == "… and 30 others"
    weights = trace.weights[7]
    assert float(others[-1]) == pytest.approx(weights.sort().values[:30].sum().item(), abs=1e-4)
    assert together[-1] == "1"
    best = sorted(weights.sort(descending=True).indices[:10].tolist())
    assert [row[0] for row in shown] == [str(key + 1) for key in best]


def test_the_data_are_complete_even_where_the_text_is_short():
    data = gh.explain(traced(queries=40, keys=40, dim=20)).to_dict()
    scores = next(step for step in data["steps"] if step["name"] == "scores")["data"]["scores"]
    assert len(scores) == 40
    assert {len(row) for row in scores} == {40}


def test_numbers_are_those_of_the_trace_to_the_last_bit():
    trace = traced(leading=(2,), normalizer=gh.Entmax15())
    explanation = gh.explain(trace, index=1)
    for name in ("scores", "scaled", "weights", "context"):
        assert torch.equal(explanation[name].data[name], getattr(trace, name)[1])


def test_keys_that_only_some_cannot_see_are_scored_as_they_are():
    trace = traced(leading=(1, 2), mask=gh.causal())
    for query in range(5):
        for line, score in zip(
            gh.explain(trace, index=(0, 1), query=query)["scores"].numbers,
            trace.scores[0, 1, query].tolist(),
            strict=True,
        ):
            assert sides(line)[0] == pytest.approx(score, abs=1e-9)


def test_a_key_that_one_head_sees_is_scored_in_the_others_too():
    seen = torch.ones(2, 1, 5, dtype=torch.bool)
    seen[1, :, 1:] = False
    trace = traced(leading=(1, 2), mask=gh.dense(seen))
    line = gh.explain(trace, index=(0, 1), query=0)["scores"].numbers[4]
    assert sides(line)[0] == pytest.approx(trace.scores[0, 1, 0, 4].item(), abs=1e-9)
    assert sides(line)[0] != 0
