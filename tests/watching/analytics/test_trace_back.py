"""Causes of predictions and of looks: exact at each edge, and the circuit of induction heads."""

import pytest
import torch
from torch import nn

import glasshead as gh
from scripts import script

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])


def language_model():
    torch.manual_seed(7)
    config = gh.LanguageModelConfig(vocab_size=11, d_model=30, num_heads=5, num_layers=3)
    model = gh.LanguageModel(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.4)
    return model


@pytest.fixture(scope="module")
def seen():
    model = language_model()
    with torch.no_grad(), gh.watch(model, keep="parts") as found:
        model(TOKENS)
    return found


def check_sums(number, causes, rest):
    """The causes of each side and what was pruned sum to the number."""
    for side, left in rest.items():
        values = [one.value for one in causes if one.side == side]
        size = sum(map(abs, values)) + abs(left) + abs(number)
        assert abs(sum(values) + left - number) <= 1e-5 * size
    for one in causes:
        if one.rest is not None:
            check_sums(one.number, one.children, one.rest)


@pytest.mark.parametrize("given", [{}, {"logit": (7, 2)}, {"head": ("blocks.2.attention", 3)}])
def test_each_edge_is_exact(seen, given):
    tree = gh.trace_back(seen, 5, depth=3, share=0.1, **given)
    assert tree.causes
    check_sums(tree.number, tree.causes, tree.rest)


def test_what_a_head_wrote_is_its_part_of_the_logit(seen):
    tree = gh.trace_back(seen, depth=1, share=0.0)
    parts = gh.logit_parts(seen)
    assert {str(one.component): one.value for one in tree.causes} == pytest.approx(
        dict(zip(parts.names, parts.parts.tolist(), strict=True))
    )
    heads = [one for one in tree.causes if one.component.head is not None]
    assert len(heads) == 15
    assert all(one.number == pytest.approx(one.value, rel=1e-4, abs=1e-4) for one in heads)


def test_nothing_below_the_share_is_followed(seen):
    tree = gh.trace_back(seen, depth=2, share=0.15)
    assert all(abs(one.share) >= 0.15 for _, one in tree.walk())
    assert gh.trace_back(seen, share=1.0).causes == ()


def test_depth_counts_heads_in_a_row(seen):
    for depth in range(4):
        tree = gh.trace_back(seen, depth=depth, share=0.1)
        deepest = max((level for level, _ in tree.walk()), default=0)
        assert deepest <= 2 * depth
        assert any(one.side == "source" for _, one in tree.walk()) == (depth > 0)


def test_a_look_begins_at_the_key_of_the_largest_weight(seen):
    tree = gh.trace_back(seen, 5, head=("blocks.1.attention", 2))
    key = int(seen["blocks.1.attention"].weights[0, 2, 5].argmax())
    assert tree.what == f"head 2 of 'blocks.1.attention' looks at {key}"
    assert {one.token for one in tree.causes if one.side == "key"} == {key}
    assert {one.token for one in tree.causes if one.side == "query"} <= {5}


def test_it_is_drawn_as_text_and_as_a_picture(seen):
    words = ["the", "cat", "sat", "on", "a", "mat", "and"]
    tree = gh.trace_back(seen, depth=2, tokens=words)
    assert str(tree).startswith(f"logit {gh.logit_parts(seen).token} from 'and' (6): ")
    page = tree.html()
    assert '<svg class="circuit"' in page
    assert all(f">{word}</text>" in page for word in words)
    nodes = {(node.word, node.layer) for node in tree.figure.nodes}
    assert (6, 4) in nodes
    for edge in tree.figure.edges:
        assert tree.figure.nodes[edge.start].layer < tree.figure.nodes[edge.end].layer


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": 1.5}, r"share must be in 0\.\.1, got 1\.5\."),
        ({"tokens": ["a"]}, r"tokens must be 7 words, got 1\."),
        ({"depth": -1}, "depth"),
    ],
)
def test_arguments_that_do_not_fit(seen, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        gh.trace_back(seen, **given)


@pytest.mark.slow
def test_the_previous_token_head_feeds_the_keys_of_the_induction_head():
    example = script("examples/induction_heads.py")
    model, _ = example.learned()
    roles = example.roles_of(model)
    induction, previous = roles.best("induction"), roles.best("previous")
    text, period = example.unseen(1, period=12), 12
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        logits = model(text)
    before = "{} head {}".format(*previous)
    for query in range(period + 1, 2 * period - 1):
        # The token after the query's token, when it was read first.
        key = query - period + 1
        parts = gh.score_parts(seen, induction[0], head=induction[1], query=query)
        assert int(parts.score.argmax()) == key
        contrast = parts.contrast(key)
        assert contrast[parts.names.index(before)] >= 0.8 * contrast.sum()
    for component, side, copies in ((before, "key", False), (before, "query", True)):
        patch = gh.PatchPart(seen, component, side=side)
        with torch.no_grad(), gh.intervene(model, {induction[0]: patch}):
            found = model(text)[0, period:-1].argmax(-1) == text[0, period + 1 :]
        assert bool(found.all()) if copies else not bool(found.any())
    tree = gh.trace_back(seen, period + 3, depth=3, share=0.2)
    assert int(logits[0, period + 3].argmax()) == text[0, period + 4]
    chain = [(one.side, str(one.component), one.token) for _, one in tree.walk()]
    assert ("logit", "{} head {}".format(*induction), period + 3) in chain
    assert ("key", before, 4) in chain
    assert ("source", before, 3) in chain
    assert ("query", "embedding.tokens", period + 3) in chain
