"""What each of the steps 11 to 16 adds to the steps before."""

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.ladder import (
    GatedAttention,
    GatedDeltaNet,
    GroupedQueryAttention,
    LatentAttention,
    MultiHeadAttention,
    SlidingWindowAttention,
    SparseAttention,
    delta_rule,
    rotated,
)
from glasshead.watching.errors import UnseenError
from ladder.random_layers import (
    ALIKE,
    BATCH,
    D_IN,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    TOKENS,
    shaken,
    words,
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20230522)


class TestGroupedQueries:
    def test_is_the_attention_of_grouped_heads(self):
        rung = shaken(GroupedQueryAttention(D_IN, HEAD_DIM, HEADS, KV_HEADS))
        x = words()
        context = gh.Attention(mask=gh.causal())(*rung.project(x))
        expected = rung.out_proj(context.transpose(1, 2).flatten(2))
        torch.testing.assert_close(rung(x), expected)

    def test_with_a_key_for_each_query_is_step_6(self):
        below = MultiHeadAttention(15, 15, TOKENS, 0.0, num_heads=3, qkv_bias=True)
        rung = GroupedQueryAttention(15, 5, 3, 3, bias=True)
        rung.load_state_dict({n: p for n, p in below.state_dict().items() if n != "mask"})
        x = torch.randn(BATCH, 7, 15)
        torch.testing.assert_close(rung(x), below(x))

    def test_makes_fewer_keys_and_values(self):
        _, keys, values = GroupedQueryAttention(D_IN, HEAD_DIM, HEADS, KV_HEADS).project(words())
        assert keys.shape == values.shape == (BATCH, KV_HEADS, TOKENS, HEAD_DIM)


class TestLatent:
    latent_dim, head_dim, rotary_dim = 7, 5, 4

    def test_the_scores_need_the_latent_vectors_alone(self):
        rung = shaken(LatentAttention(D_IN, 3, self.latent_dim, self.head_dim, self.rotary_dim))
        x = words()
        latent, shared = rung.remember(x)
        content, turned = rung.ask(x)
        # The matrix that makes the keys is applied to the queries instead.
        moved = content @ rung.W_key.weight.unflatten(0, (3, self.head_dim))
        scores = moved @ latent[:, None].mT + turned @ shared[:, None].mT
        torch.testing.assert_close(scores / 9**0.5, rung.compare(x)[0], **ALIKE)

    def test_a_selection_of_all_words_is_no_selection(self):
        rung = shaken(SparseAttention(D_IN, 3, 7, 5, 4, 17, 2, 7, top_k=TOKENS))
        future = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
        assert torch.equal(rung.hidden(words()), future.expand(BATCH, 1, -1, -1))

    def test_the_best_index_scores_are_selected(self):
        rung = shaken(SparseAttention(D_IN, 3, 7, 5, 4, 17, 2, 7, top_k=3))
        x = words()
        scores, hidden = rung.index(x), rung.hidden(x)[:, 0]
        for row in range(3, TOKENS):
            best = scores[0, row, : row + 1].sort(descending=True).values
            kept = scores[0, row, ~hidden[0, row]].sort(descending=True).values
            assert torch.equal(kept, best[:3])


class TestRotation:
    def test_products_depend_on_the_distance_alone(self):
        query, key = torch.randn(1, 6), torch.randn(1, 6)
        products = rotated(query.expand(13, -1)) @ rotated(key.expand(13, -1)).T
        for distance in range(-12, 13):
            along = products.diagonal(distance)
            torch.testing.assert_close(along, along[:1].expand_as(along), **ALIKE)
        assert products[0, 1] != pytest.approx(products[0, 0].item(), abs=1e-3)

    def test_lengths_and_the_first_word_stay(self):
        x = torch.randn(3, 7, 4)
        torch.testing.assert_close(rotated(x).norm(dim=-1), x.norm(dim=-1))
        assert torch.equal(rotated(x)[:, 0], x[:, 0])

    def test_a_quarter_turn(self):
        # The second pair is the square root of the base slower: at base 4, half as fast.
        turned = rotated(torch.tensor([[1.0, 0, 1, 0]] * 2), base=4.0)[1]
        expected = torch.tensor([1.0, 1.0, 0.5, 0.5])
        torch.testing.assert_close(turned[::2], expected[::2].cos())
        torch.testing.assert_close(turned[1::2], expected[1::2].sin())


class TestWindowAndSinks:
    window = 5

    def test_is_the_attention_with_a_window_and_a_sink(self):
        rung, x = SlidingWindowAttention(D_IN, HEAD_DIM, 3, 1, self.window), words()
        # A sink of 0, as a fresh one is, adds 1 below the line.
        mask = gh.causal() & gh.window(before=self.window - 1)
        context = gh.Attention(mask=mask, normalizer=gh.SoftmaxOne())(*rung.project(x))
        expected = rung.out_proj(context.transpose(1, 2).flatten(2))
        torch.testing.assert_close(rung(x), expected)

    def test_a_sink_takes_its_share(self):
        rung = SlidingWindowAttention(D_IN, HEAD_DIM, 2, 1, window=3)
        with torch.no_grad():
            rung.sinks.copy_(torch.tensor([5.0, 1.0]).log())
        weights = rung.weigh(torch.zeros(1, 2, 7, 7))
        # Three words count 1 each, and the sink 5 or 1.
        assert weights[0, 0, 6].tolist() == pytest.approx([0, 0, 0, 0, 1 / 8, 1 / 8, 1 / 8])
        assert weights[0, 1, 6].tolist() == pytest.approx([0, 0, 0, 0, 1 / 4, 1 / 4, 1 / 4])

    def test_what_left_the_window_changes_nothing(self):
        rung, x = shaken(SlidingWindowAttention(D_IN, HEAD_DIM, 3, 1, window=3)), words()
        other = x.clone()
        other[:, 4] += 1
        changed = (rung(x) - rung(other)).abs().amax(-1)[0] > 1e-6
        assert changed.nonzero().flatten().tolist() == [4, 5, 6]


class TestGate:
    def test_gates_that_are_open_by_half_halve_the_result(self):
        rung, x = shaken(GatedAttention(D_IN, HEAD_DIM, 3, 1)), words()
        nn.init.zeros_(rung.W_gate.weight)
        torch.testing.assert_close(rung(x), rung.out_proj(rung.contexts(x)) / 2)

    def test_queries_and_keys_have_a_root_mean_square_of_1(self):
        queries, keys, _ = GatedAttention(D_IN, HEAD_DIM, 3, 1).project(words())
        for vectors in (queries, keys):
            squares = vectors.square().mean(-1)
            torch.testing.assert_close(squares, torch.ones_like(squares), rtol=1e-3, atol=0)


class TestDeltaRule:
    key_dim, value_dim, heads = 5, 7, 3

    def inputs(self, tokens=TOKENS):
        shape = (BATCH, self.heads, tokens)
        queries, keys = (
            nn.functional.normalize(torch.randn(*shape, self.key_dim), dim=-1) for _ in range(2)
        )
        return queries, keys, torch.randn(*shape, self.value_dim), *torch.rand(2, *shape)

    def test_a_full_rate_writes_the_value_and_no_rate_writes_nothing(self):
        queries, keys, values, _, decays = self.inputs()
        _, memory = delta_rule(queries, keys, values, torch.ones_like(decays), decays)
        answer = (memory * keys[..., -1, :, None]).sum(-2)
        torch.testing.assert_close(answer, values[..., -1, :], **ALIKE)
        outputs, memory = delta_rule(queries, keys, values, torch.zeros_like(decays), decays)
        assert not outputs.any()
        assert not memory.any()

    def test_under_keys_at_right_angles_it_is_attention_without_a_softmax(self):
        keys = torch.eye(5)
        queries, values, ones = torch.randn(5, 5), torch.randn(5, 7), torch.ones(5)
        outputs, _ = delta_rule(queries, keys, values, ones, ones)
        expected = (queries @ keys.T).tril() @ values / 5**0.5
        torch.testing.assert_close(outputs, expected, **ALIKE)

    def test_the_layer_does_not_look_ahead(self):
        layer, x = shaken(GatedDeltaNet(D_IN, 3, 5, 7)), words()
        torch.testing.assert_close(layer(x)[:, :7], layer(x[:, :7]), **ALIKE)


class TestErrors:
    @pytest.mark.parametrize(
        "rung",
        [
            GroupedQueryAttention(3, 2, 4, 2),
            LatentAttention(3, 2, 2, 2, 2),
            SlidingWindowAttention(3, 2, 4, 2, window=3),
            SparseAttention(3, 2, 2, 2, 2, 2, 2, 2, top_k=3),
            GatedAttention(3, 2, 4, 2),
            GatedDeltaNet(3, 1, 2, 2),
        ],
        ids=lambda rung: type(rung).__name__,
    )
    @pytest.mark.parametrize("shape", [(6, 3), (1, 6, 4)])
    def test_words_of_other_shape(self, rung, shape):
        got = ", ".join(map(str, shape))
        with pytest.raises(ValueError, match=rf"x must be \[batch, tokens, 3\], got \[{got}\]\."):
            rung(torch.ones(shape))

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: GroupedQueryAttention(3, 2, 4, 3), "num_heads=4 and num_kv_heads=3"),
            (lambda: GroupedQueryAttention(3, 2, 4, 0), "num_heads=4 and num_kv_heads=0"),
            (lambda: LatentAttention(3, 2, 2, 2, 3), "rotary_dim must be even, got 3"),
            (lambda: LatentAttention(3, 0, 2, 2, 2), "num_heads must be at least 1, got 0"),
            (lambda: SlidingWindowAttention(3, 2, 4, 2, 0), "window must be at least 1, got 0"),
            (lambda: SparseAttention(3, 2, 2, 2, 2, 2, 2, 2, 0), "got 0, 2 and 2"),
            (lambda: SparseAttention(3, 2, 2, 2, 4, 2, 2, 3, 5), "at least rotary_dim=4, got 5, 2"),
            (lambda: GatedDeltaNet(3, 0, 2, 2), "kernel_size must be at least 1, got 0 and 4"),
        ],
    )
    def test_sizes_that_do_not_fit(self, build, message):
        with pytest.raises(ValueError, match=message):
            build()


class TestWatched:
    @pytest.mark.parametrize(
        ("rung", "heads"),
        [
            (GroupedQueryAttention(3, 2, 4, 2), 4),
            (LatentAttention(3, 2, 2, 2, 2), 2),
            (SparseAttention(3, 2, 2, 2, 2, 2, 2, 2, top_k=3), 2),
            (GatedAttention(3, 2, 4, 2), 4),
        ],
        ids=lambda part: type(part).__name__,
    )
    @pytest.mark.filterwarnings("ignore:watch saw keys")
    def test_their_attention_is_seen(self, rung, heads):
        x = torch.randn(1, 7, 3)
        with gh.watch(rung, keep="weights") as seen:
            rung(x)
        (watched,) = seen.values()
        weights = watched.weights[0, :, :, :]
        torch.testing.assert_close(weights.sum(-1), torch.ones(heads, 7))
        assert not weights.triu(1).any()

    @pytest.mark.parametrize(
        "rung",
        [SlidingWindowAttention(3, 2, 4, 2, window=3), GatedDeltaNet(3, 1, 2, 2)],
        ids=lambda rung: type(rung).__name__,
    )
    def test_what_is_no_plain_softmax_is_refused(self, rung):
        x = torch.randn(1, 7, 3)
        with pytest.raises(UnseenError), gh.watch(rung, [gh.Entropy()]):
            rung(x)
