"""Head cards: weights that are set, sums over texts, and what feeds a head."""

import math

import pytest
import torch

import glasshead as gh
from glasshead.watching.analytics import HeadCards
from glasshead.watching.analytics.head_card import entry
from glasshead.watching.analytics.head_cards import _measured, _Text
from glasshead.watching.analytics.logit_parts import head_logits
from glasshead.watching.analytics.score_parts import contrasts

# A sink, two tokens, a separator, and the two in the other order.
TOKENS = torch.tensor([0, 5, 6, 9, 6, 5])
MATCH = [0, 0, 1, 2, 2, 1]


def set_weights(*rows):
    """Watch one attention with heads of given weights, `[queries, keys]` each."""
    x = torch.zeros(1, len(rows), len(TOKENS), 2)
    bias = torch.stack([torch.as_tensor(row, dtype=torch.float32) for row in rows]).log()
    attention = gh.Attention()
    with gh.watch(attention, keep="parts") as seen:
        attention(x, x, x, bias=bias[None])
    return seen


def one_hot(places):
    return torch.nn.functional.one_hot(torch.tensor(places), len(places))


def test_numbers_of_set_weights_are_worked_out_on_paper():
    seen = set_weights(one_hot(MATCH), torch.full((6, 6), 1 / 6))
    cards = gh.head_cards(seen, TOKENS, separator=9)
    match, uniform = cards.cards
    assert (match.role, uniform.role) == ("alignment", "broad")
    assert match.scores["alignment"] == 1
    # Two queries, of each ½ · ½ for the one equal token of two.
    assert uniform.scores["alignment"] == pytest.approx(1 / 4)
    # The first of equal weights is on the sink.
    assert (match.scores["match"], uniform.scores["match"]) == (1, 0)
    assert match.entropy == 0
    assert uniform.entropy == pytest.approx(math.log(6), rel=1e-6)
    assert match.distance == pytest.approx((0 + 1 + 1 + 1 + 2 + 4) / 6)
    # Of the five queries that are no sink, one looks at the sink.
    assert match.sink == pytest.approx(1 / 5)
    assert uniform.sink == pytest.approx(1 / 6)
    assert dict(match.keys) == pytest.approx({"5": 2 / 5, "6": 2 / 5, "0": 1 / 5})
    looks = {(query, key): share for query, key, share in match.looks}
    assert looks[("5", "5")] == looks[("6", "6")] == looks[("6", "5")] == pytest.approx(1 / 5)
    assert match.fed_by == match.writes == ()
    assert cards.unknown is None


def test_the_strongest_look_counts_keys_whose_weight_is_too_small():
    scores = torch.eye(6).log()
    # The first of these queries sees a second key, whose weight of e^-200 is 0 in float32.
    scores[1, 2] = -200.0
    scores[2, 1:4] = torch.tensor([0.2, 0.6, 0.2]).log()
    attention, x = gh.Attention(), torch.zeros(1, 1, 6, 2)
    with gh.watch(attention, keep="parts") as seen:
        attention(x, x, x, bias=scores)
    text = _Text.of(TOKENS, None, ())
    # 1 - 1/2 is more than 0.6 - 1/3.
    assert _measured(seen[""].weights, text)["look"].tolist() == [[1, 1]]


def test_alignment_needs_one_key_for_each_query():
    # Both queries look at the first of two equal tokens.
    tokens = torch.tensor([0, 5, 5, 9, 5, 5])
    seen = set_weights(one_hot([0, 0, 0, 0, 1, 1]), one_hot([0, 0, 0, 0, 1, 2]))
    same, apart = gh.head_cards(seen, tokens, separator=9).cards
    assert same.scores["alignment"] == 0.5
    assert apart.scores["alignment"] == 1
    (without, _) = gh.head_cards(seen, tokens).cards
    assert math.isnan(without.scores["alignment"])
    assert "match" not in without.scores
    assert same.scores["match"] == apart.scores["match"] == 1
    assert without.role != "alignment"


def test_the_heads_that_align_are_named_before_the_cards():
    cards = gh.head_cards(
        set_weights(one_hot(MATCH), torch.full((6, 6), 1 / 6)), TOKENS, separator=9
    )
    text = " ".join(cards.text().split())
    assert "on an equal token of the first part: layer the model head 0 100%." in text
    assert "For any other head, the share is at most 0%." in text
    assert text.index("100%.") < text.index("Layer the model")
    alone = gh.head_cards(set_weights(torch.full((6, 6), 1 / 6)), TOKENS, separator=9)
    assert "No head aligns the two parts of a text." in alone.text()
    assert "two parts" not in gh.head_cards(set_weights(one_hot(MATCH)), TOKENS).text()


def test_special_tokens_are_sinks():
    seen = set_weights(one_hot([0, 3, 3, 3, 3, 0]))
    (card,) = gh.head_cards(seen, TOKENS, special={9}).cards
    # Queries 1, 2, 4 and 5 are no sinks.
    assert card.sink == 1
    assert dict(card.keys) == pytest.approx({"9": 3 / 4, "0": 1 / 4})


def language_model():
    torch.manual_seed(7)
    config = gh.LanguageModelConfig(vocab_size=11, d_model=20, num_heads=5, num_layers=3)
    return gh.LanguageModel(config).eval()


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    small = {"hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2}
    config = LlamaConfig(
        vocab_size=11, num_hidden_layers=3, intermediate_size=17, initializer_range=0.3, **small
    )
    return LlamaForCausalLM(config).eval()


TEXTS = [torch.tensor([3, 1, 4, 1, 5, 9, 2]), torch.tensor([2, 7, 1, 8, 2])]


def watched(model, tokens):
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(tokens[None])
    return seen


@pytest.mark.parametrize("build", [language_model, llama])
def test_contrasts_of_several_looks_are_those_of_each(build):
    seen = watched(build(), TEXTS[0])
    name = list(seen)[-1]
    looks = [(0, 4, 1), (3, 6, 3), (2, 3, 0), (1, 6, 6)]
    for side, (components, parts) in contrasts(seen, name, looks, "test").items():
        for (head, query, key), own in zip(looks, parts, strict=True):
            one = gh.score_parts(seen, name, head=head, query=query)
            right = dict(zip(one.components, one.contrast(key, side=side).tolist(), strict=True))
            right = [right[component] for component in components]
            torch.testing.assert_close(own.float(), torch.tensor(right), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("build", [language_model, llama])
def test_logits_of_a_head_are_its_parts(build):
    seen = watched(build(), TEXTS[0])
    name = list(seen)[1]
    written = head_logits(seen, name, [(2, 3), (0, 6)])
    assert written is not None
    for row, (head, query) in zip(written, [(2, 3), (0, 6)], strict=True):
        for token in (0, 7):
            parts = gh.logit_parts(seen, token, query=query)
            part = parts.parts[parts.names.index(f"{name} head {head}")]
            torch.testing.assert_close(row[token], part, atol=1e-5, rtol=1e-4)


def test_cards_of_two_texts_add_up():
    model = language_model()
    one, other = (gh.head_cards(watched(model, text), text) for text in TEXTS)
    both = one + other
    assert (both.texts, both.layers) == (2, one.layers)
    for a, b, c in zip(one.cards, other.cards, both.cards, strict=True):
        assert c.entropy == pytest.approx((7 * a.entropy + 5 * b.entropy) / 12)
        assert c.sink == pytest.approx((6 * a.sink + 4 * b.sink) / 10)
    with pytest.raises(ValueError, match="of one model, got those of two"):
        one + gh.head_cards(watched(llama(), TEXTS[0]), TEXTS[0])


def test_a_state_gives_the_same_cards():
    model = language_model()
    one, other = (gh.head_cards(watched(model, text), text) for text in TEXTS)
    again = HeadCards.of_state(*one.state(), str) + other
    # Scores that no query counts for are NaN.
    assert list(map(entry, again.cards)) == list(map(entry, (one + other).cards))


class Bent(torch.nn.Module):
    """Attention whose queries are no linear function of its input."""

    def __init__(self):
        super().__init__()
        self.attention = gh.Attention()

    def forward(self, x):
        return self.attention(x * x, x, x)


def test_a_head_that_cannot_be_followed_has_the_reason():
    torch.manual_seed(5)
    x = torch.randn(1, 2, 6, 3)
    model = Bent()
    with gh.watch(model, keep="parts") as seen:
        model(x)
    cards = gh.head_cards(seen, TOKENS)
    assert "is not linear" in str(cards.unknown)
    assert "What feeds some heads is not known" in cards.text()
    assert cards.cards[0].fed_by == ()
    assert cards.cards[0].entropy > 0


def test_heads_name_those_that_feed_them():
    cards = gh.head_cards(watched(language_model(), TEXTS[0]), TEXTS[0]).cards
    for card in cards:
        for side, name, share in card.feeds:
            (fed,) = (x for x in cards if f"{x.layer} head {x.head}" == name)
            assert (side, f"{card.layer} head {card.head}", share) in fed.fed_by
    assert any(card.feeds for card in cards)
    # The first layer reads embeddings and their norm alone.
    assert all("head" not in name for card in cards[:5] for _, name, _ in card.fed_by)


def test_layers_that_share_weights_have_cards_of_their_own():
    from transformers import AlbertConfig, AlbertModel

    torch.manual_seed(3)
    small = {"hidden_size": 15, "num_attention_heads": 3, "intermediate_size": 17}
    config = AlbertConfig(vocab_size=11, embedding_size=7, num_hidden_layers=3, **small)
    cards = gh.head_cards(watched(AlbertModel(config).eval(), TEXTS[0]), TEXTS[0])
    assert [name.rpartition("#")[2] for name in cards.layers] == ["0", "1", "2"]
    fed = {name for card in cards.cards[6:] for _, name, _ in card.fed_by}
    assert any("#1 head" in name for name in fed)


def test_bad_input_is_refused():
    model = language_model()
    seen = watched(model, TEXTS[0])
    with pytest.raises(ValueError, match=r"one text of three tokens or more, \[length\], got \[2"):
        gh.head_cards(seen, torch.zeros(2, 7, dtype=torch.long))
    with pytest.raises(ValueError, match="two tokens that are no sinks"):
        gh.head_cards(seen, TEXTS[0], special=range(11))
    with torch.no_grad(), gh.watch(model, keep="weights") as without:
        model(TEXTS[0][None])
    with pytest.raises(ValueError, match="keep='parts'"):
        gh.head_cards(without, TEXTS[0])
