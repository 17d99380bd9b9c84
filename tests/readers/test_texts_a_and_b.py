"""Texts A and B, the same chapter in Turkish and Spanish: its code as a reader types it.

"Hello shiny sun!", weights that are trained, the causal mask, dropout and several heads. What the
text prints is compared to the last digit, and so is what glasshead tells of the same classes.
"""

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead import ladder
from readers.journey import NUMBERS, WORDS, four, inputs, printed, traced

RAN = NUMBERS["ran_here"]


class SelfAttention_v1(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query = nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = nn.Parameter(torch.rand(d_in, d_out))

    def forward(self, x):
        keys = x @ self.W_key
        queries = x @ self.W_query
        values = x @ self.W_value
        attn_scores = queries @ keys.T
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        context_vec = attn_weights @ values
        return context_vec


class SelfAttention_v2(nn.Module):
    def __init__(self, d_in, d_out, qkv_bias=False):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x):
        keys = self.W_key(x)
        queries = self.W_query(x)
        values = self.W_value(x)
        attn_scores = queries @ keys.T
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        context_vec = attn_weights @ values
        return context_vec


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, qkv_bias=False):
        super().__init__()
        self.d_out = d_out
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer(
            "mask", torch.triu(torch.ones(context_length, context_length), diagonal=1)
        )

    def forward(self, x):
        b, num_tokens, d_in = x.shape
        keys = self.W_key(x)
        queries = self.W_query(x)
        values = self.W_value(x)
        attn_scores = queries @ keys.transpose(1, 2)
        attn_scores.masked_fill_(self.mask.bool()[:num_tokens, :num_tokens], -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)
        context_vec = attn_weights @ values
        return context_vec


class MultiHeadAttentionWrapper(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.heads = nn.ModuleList(
            [
                CausalAttention(d_in, d_out, context_length, dropout, qkv_bias)
                for _ in range(num_heads)
            ]
        )

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert d_out % num_heads == 0
        self.d_out = d_out
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer(
            "mask", torch.triu(torch.ones(context_length, context_length), diagonal=1)
        )

    def forward(self, x):
        b, num_tokens, d_in = x.shape
        keys = self.W_key(x).view(b, num_tokens, self.num_heads, self.head_dim)
        queries = self.W_query(x).view(b, num_tokens, self.num_heads, self.head_dim)
        values = self.W_value(x).view(b, num_tokens, self.num_heads, self.head_dim)
        keys, queries, values = (t.transpose(1, 2) for t in (keys, queries, values))
        attn_scores = queries @ keys.transpose(2, 3)
        mask_bool = self.mask.bool()[:num_tokens, :num_tokens]
        attn_scores.masked_fill_(mask_bool, -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)
        context_vec = (attn_weights @ values).transpose(1, 2)
        context_vec = context_vec.contiguous().view(b, num_tokens, self.d_out)
        return self.out_proj(context_vec)


class SimplifiedSelfAttention(nn.Module):
    """The first section of the chapter, which has no weights, as a class."""

    def forward(self, x):
        attn_weights = torch.softmax(x @ x.T, dim=-1)
        return attn_weights @ x


class TestHelloShinySun:
    shiny = NUMBERS["shiny_sun"]

    def explanation(self):
        x = torch.tensor(self.shiny["embeddings"])
        return gh.explain(SimplifiedSelfAttention(), x, tokens=self.shiny["tokens"], query="shiny")

    def test_word_by_word_as_the_text_computes_it(self):
        x = torch.tensor(self.shiny["embeddings"])
        query = x[1]
        scores = torch.empty(x.shape[0])
        for i, x_i in enumerate(x):
            scores[i] = torch.dot(x_i, query)
        weights = torch.softmax(scores, dim=0)
        context = torch.zeros(query.shape)
        for i, x_i in enumerate(x):
            context += weights[i] * x_i
        assert four(scores) == printed(self.shiny["exact_scores"])
        assert four(context) == printed(self.shiny["exact_context"])

    def test_the_printed_terms_are_off_where_the_errata_say(self):
        """In the fourth digit: by 3 in two terms, by rounding on the way in three."""
        x = torch.tensor(self.shiny["embeddings"])
        terms = torch.softmax(x @ x[1], dim=0) * x.T
        given = torch.tensor(self.shiny["printed_terms"])
        off = (given * 10_000).round() - (terms * 10_000).round()
        assert off.tolist() == [[0, 3, 0], [0, 1, 3], [0, 2, -1]]

    def test_the_class_is_explained_by_its_own_numbers(self):
        told = traced(self.explanation())
        assert four(told["scores"]["scores"][1]) == printed(self.shiny["exact_scores"])
        assert four(told["weights"]["weights"][1]) == printed(self.shiny["exact_weights"])
        assert four(told["context"]["context"][1]) == printed(self.shiny["exact_context"])

    def test_the_printed_context_is_off_where_the_errata_say(self):
        exact = four(traced(self.explanation())["context"]["context"][1])
        given = printed(self.shiny["printed_context"])
        assert [a == b for a, b in zip(exact, given, strict=True)] == [False, False, True]


class TestJourney:
    def test_self_attention_v2(self):
        torch.manual_seed(789)
        sa_v2 = SelfAttention_v2(3, 2)
        expected = printed(RAN["SelfAttentionV2 seed 789"])
        assert four(sa_v2(inputs())) == expected
        told = traced(gh.explain(sa_v2, inputs(), tokens=WORDS, query="journey"))
        assert four(told["context"]["context"]) == expected
        assert four(gh.MultiHeadAttention.from_module(sa_v2)(inputs()[None])[0]) == expected

    def test_causal_attention(self):
        batch = torch.stack((inputs(), inputs()), dim=0)
        torch.manual_seed(123)
        ca = CausalAttention(3, 2, batch.shape[1], 0.0)
        expected = printed(
            RAN["CausalAttention seed 123 (batch of two equal sentences, first shown)"]
        )
        assert four(ca(batch)) == [expected, expected]
        told = gh.explain(ca, batch, tokens=WORDS, query="journey", index=(1,))
        assert four(traced(told)["context"]["context"]) == expected
        assert told.recipe["mask"] == "causal()"
        assert four(gh.MultiHeadAttention.from_module(ca)(batch)[0]) == expected

    def test_multi_head_attention(self):
        batch = torch.stack((inputs(), inputs()), dim=0)
        torch.manual_seed(123)
        mha = MultiHeadAttention(3, 2, batch.shape[1], 0.0, num_heads=2)
        expected = printed(RAN["MultiHeadAttention seed 123, 2 heads (first shown)"])
        assert four(mha(batch)) == [expected, expected]
        layer = gh.MultiHeadAttention.from_module(mha)
        assert four(layer(batch)[0]) == expected
        for head in range(2):
            told = traced(gh.explain(mha, batch, tokens=WORDS, index=(0, head)))
            trace = layer.trace(batch)
            torch.testing.assert_close(told["weights"]["weights"], trace.weights[0, head])
            torch.testing.assert_close(told["context"]["context"], trace.context[0, head])

    def test_the_mask_of_the_text_hides_the_words_to_come(self):
        """Written as `triu(..., diagonal=1)` filled with -inf, and not multiplied by it."""
        torch.manual_seed(789)
        sa_v2 = SelfAttention_v2(3, 2)
        attn_scores = sa_v2.W_query(inputs()) @ sa_v2.W_key(inputs()).T
        mask = torch.triu(torch.ones(6, 6), diagonal=1)
        masked = attn_scores.masked_fill(mask.bool(), -torch.inf)
        attn_weights = torch.softmax(masked / 2**0.5, dim=1)
        trace = gh.Attention(mask=gh.causal()).trace(
            sa_v2.W_query(inputs()), sa_v2.W_key(inputs()), sa_v2.W_value(inputs())
        )
        assert four(attn_weights) == four(trace.weights)
        # The text's other way: hide after the softmax, and divide each row by what is left.
        simple = torch.softmax(attn_scores / 2**0.5, dim=-1) * torch.tril(torch.ones(6, 6))
        assert four(simple / simple.sum(dim=-1, keepdim=True)) == four(trace.weights)


@pytest.mark.parametrize(
    ("mine", "theirs", "options"),
    [
        (SelfAttention_v1, ladder.SelfAttention_v1, ()),
        (SelfAttention_v2, ladder.SelfAttention_v2, ()),
        (CausalAttention, ladder.CausalAttention, (7, 0.25)),
        (MultiHeadAttentionWrapper, ladder.MultiHeadAttentionWrapper, (7, 0.25, 2)),
        (MultiHeadAttention, ladder.MultiHeadAttention, (7, 0.25, 2)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_the_ladder_has_the_class_by_its_name_and_arguments(mine, theirs, options):
    assert mine.__name__ == theirs.__name__ or mine.__name__.replace("_v", "V") == theirs.__name__
    built = []
    for kind in (mine, theirs):
        torch.manual_seed(123)
        built.append(kind(3, 4, *options).eval())
    x = inputs() if not options else inputs()[None]
    assert torch.equal(built[0](x), built[1](x))
