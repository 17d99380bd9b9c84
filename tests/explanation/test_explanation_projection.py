"""How embeddings become queries, keys and values."""

import json
from pathlib import Path

import pytest
import torch
from explanation_told import sides, two_decimals

import glasshead as gh
from glasshead.explanation.embeddings import Projection

SEED = json.loads((Path(__file__).parents[1] / "data" / "seed_numbers.json").read_text("utf-8"))


def projection(d_out=2, **options):
    matrices = {
        f"W_{role}": two_decimals(3, d_out, seed=place)
        for place, role in enumerate(("query", "key", "value"))
    }
    return Projection(inputs=two_decimals(4, 3, seed=9), **{**matrices, **options})


def told(made, heads=1, **options):
    q, k, v = made.queries, made.keys, made.values
    if heads > 1:
        q, k, v = (x.unflatten(-1, (heads, -1)).transpose(0, 1)[None] for x in (q, k, v))
    trace = gh.Attention().trace(q, k, v)
    return gh.explain(trace, tokens=list("abcd"), projection=made, **options)


def test_it_comes_first_and_its_sums_are_right():
    made = projection(b_key=two_decimals(2, seed=5))
    explanation = told(made, query="b")
    assert [step.name for step in explanation.steps[:3]] == ["opening", "projection", "inputs"]
    lines = [line for line in explanation["projection"].numbers if "₁(b)" in line or "₂(b)" in line]
    assert [line[:2] for line in lines] == ["q₁", "q₂", "k₁", "k₂", "v₁", "v₂"]
    exact = [*made.queries[1], *made.keys[1], *made.values[1]]
    for line, result in zip(lines, exact, strict=True):
        written, shown = sides(line)
        assert written == pytest.approx(result.item(), abs=1e-9)
        assert shown == pytest.approx(result.item(), abs=6e-5)
    assert explanation["projection"].formula == (
        "q = x·W_query,   k = x·W_key + b_key,   v = x·W_value"
    )


def test_the_texts_numbers_come_out():
    seed, journey = SEED["scaled_dot_product_article"], torch.tensor(SEED["journey_inputs"])
    torch.manual_seed(seed["seed"])
    q, k, v = (torch.rand(3, 2) for _ in range(3))
    made = Projection(inputs=journey, W_query=q, W_key=k, W_value=v)
    trace = gh.Attention().trace(made.queries, made.keys, made.values)
    step = gh.explain(trace, query=1, projection=made)["projection"]
    assert [line for line in step.numbers if line.startswith("q")][-1] == "q(2)  = " + str(
        seed["rand_query_2"]
    )


def test_each_head_has_its_columns():
    made = projection(d_out=6)
    numbers = told(made, heads=3, index=(0, 1), query="a")["projection"].numbers
    line = next(line for line in numbers if line.startswith("q₁(a)"))
    assert sides(line)[0] == pytest.approx(made.queries[0, 2].item(), abs=1e-9)


def test_in_cross_attention_only_the_query_is_told():
    made = projection()
    trace = gh.Attention().trace(made.queries, torch.rand(3, 2).double(), torch.rand(3, 2).double())
    explanation = gh.explain(trace, tokens=list("abcd"), keys=list("xyz"), projection=made)
    lines = explanation["projection"].numbers
    assert not [line for line in lines if line.startswith(("k", "v"))]


def test_a_projection_of_something_else_is_refused():
    made = projection()
    trace = gh.Attention().trace(made.queries + 1, made.keys, made.values)
    with pytest.raises(ValueError, match="its W_query does not give the query vectors"):
        gh.explain(trace, projection=made)


def test_a_projection_of_another_width_is_refused():
    trace = gh.Attention().trace(*(torch.rand(4, 5).double() for _ in range(3)))
    with pytest.raises(ValueError, match="W_query takes 5 columns.*or 5 for 1 heads, and got 2"):
        gh.explain(trace, projection=projection())
