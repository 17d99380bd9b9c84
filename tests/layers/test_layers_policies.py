"""What a policy keeps, against the same by hand; and that nothing else changes."""

import math

import pytest
import torch
from torch.nn import functional as F

import glasshead as gh
from cases import EverySecond
from glasshead.layers.kv_cache import EvictingCache
from layers.torch_names import loud

D_MODEL, HEADS, KV_HEADS, LENGTH = 12, 6, 2, 37


POLICIES = [gh.H2O(7), gh.SnapKV(11, window=3, kernel=3), gh.TOVA(7), gh.Sinks(2, 5)]


every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)


def self_attention(mask=None, **options):
    bias = options.pop("alibi", False)
    rule = gh.Attention(mask=mask or gh.causal(), bias=gh.ALiBi(HEADS) if bias else None)
    layer = gh.MultiHeadAttention(D_MODEL, HEADS, KV_HEADS, attention=rule, **options)
    return loud(layer)


def fed(layer, x, chunks, cache, **call):
    """The results of a text that is fed in chunks."""
    return torch.cat([layer(part, cache=cache, **call) for part in x.split(chunks, 1)], 1)


class ByHand:
    """One text through one attention with a policy: lists of places, and dense rows of weights."""

    def __init__(self, layer, x, policy, window=None):
        self.q, self.k, self.v = (part[0] for part in layer.heads(x))
        self.layer, self.policy, self.window = layer, policy, window
        self.held = [[] for _ in range(KV_HEADS)]
        # Of each key head, what the queries so far gave to each place.
        self.rows = [[] for _ in range(KV_HEADS)]

    def run(self, chunks):
        contexts, start = [], 0
        for count in chunks:
            contexts += self.call(range(start, start + count))
            self.evict()
            start += count
        return self.layer.output(torch.stack(contexts)[None])

    def call(self, positions):
        for held in self.held:
            held.extend(positions)
        return [torch.cat([self.head(head, p) for head in range(HEADS)]) for p in positions]

    def head(self, head, position):
        group = HEADS // KV_HEADS
        held, rows = self.held[head // group], self.rows[head // group]
        seen = [j for j in held if j <= position and self.sees(position, j)]
        scores = self.k[head // group, seen] @ self.q[head, position] / math.sqrt(2)
        if self.layer.attention.bias is not None:
            slope = self.layer.attention.bias.slopes[head]
            scores = scores - slope * (position - torch.tensor(seen))
        weights = scores.softmax(0)
        if head % group == 0:
            rows.append({})
        for j, weight in zip(seen, weights.tolist(), strict=True):
            rows[-1][j] = rows[-1].get(j, 0.0) + weight / group
        return weights @ self.v[head // group, seen]

    def sees(self, position, key):
        return self.window is None or position - key <= self.window

    def evict(self):
        last = max(self.held[0])
        kept = []
        for head, held in enumerate(self.held):
            seen = [j for j in held if self.sees(last, j)]
            if len(held) > self.policy.most:
                worth = self.worth(head, seen)
                best = sorted(seen, key=lambda j, worth=worth: -worth[j])[: self.policy.most]
                # What nobody sees may stay where there is room.
                unseen = [j for j in held if j not in seen]
                best += unseen[: self.policy.most - len(best)]
                kept.append(sorted(best))
            else:
                kept.append(held)
        self.held = kept

    def worth(self, head, seen):
        policy, rows = self.policy, self.rows[head]
        if isinstance(policy, gh.Sinks):
            stays = [*seen[: policy.first], *self.held[head][-policy.window :]]
            return {j: math.inf if j in stays else 0.0 for j in seen}
        if isinstance(policy, gh.H2O):
            latest = self.held[head][-math.ceil(policy.budget / 2) :]
            mass = {j: sum(row.get(j, 0.0) for row in rows) for j in seen}
            return {j: math.inf if j in latest else mass[j] for j in seen}
        if isinstance(policy, gh.TOVA):
            return {j: sum(r[-1].get(j, 0.0) for r in self.rows) for j in seen}
        held, window = self.held[head], policy.window
        voted = [sum(row.get(j, 0.0) for row in rows[-window:]) for j in held]
        before, half = voted[:-window], policy.kernel // 2
        pooled = [sum(before[max(0, i - half) : i + half + 1]) for i in range(len(before))]
        return dict(zip(held, [*pooled, *[math.inf] * window], strict=True))


CHUNKS = [[1] * LENGTH, [LENGTH], [19, *[1] * 18], [5, 11, 1, 2, 18]]


@every_policy
class TestByHand:
    @pytest.mark.parametrize("chunks", CHUNKS, ids=["tokens", "at once", "a prompt", "chunks"])
    @pytest.mark.parametrize(
        ("window", "options"),
        [
            (None, {}),
            (None, {"rotary": gh.Rotary(2)}),
            (None, {"alibi": True}),
            (4, {"rotary": gh.Rotary(2)}),
            (9, {"alibi": True}),
        ],
        ids=["plain", "turned", "alibi", "window", "alibi and window"],
    )
    def test_contexts_and_what_is_kept(self, policy, chunks, window, options):
        mask = gh.causal() if window is None else gh.causal() & gh.window(before=window)
        layer = self_attention(mask, **options)
        x, cache = torch.randn(1, LENGTH, D_MODEL).double(), EvictingCache(policy)
        by_hand = ByHand(layer, x, policy, window)
        torch.testing.assert_close(fed(layer, x, chunks, cache), by_hand.run(chunks))
        assert cache.positions[0].tolist() == by_hand.held
        assert (cache.length, cache.count) == (LENGTH, policy.most)

    def test_keys_and_values_are_those_of_the_places(self, policy):
        layer, cache = self_attention(rotary=gh.Rotary(2)), EvictingCache(policy)
        x = torch.randn(2, LENGTH, D_MODEL).double()
        fed(layer, x, [5, 11, 1, 2, 18], cache)
        for held, whole in zip(cache.held, layer.heads(x)[1:], strict=True):
            at_places = whole.take_along_dim(cache.positions[..., None], -2)
            torch.testing.assert_close(held, at_places)
            assert not held.requires_grad


def weighed(policy, *rows):
    """What stays where query i gives key j the share `rows[i][j]` of its weights, all at once."""
    cache = EvictingCache(policy)
    attention = gh.Attention(score=gh.Dot())
    scores = torch.tensor(rows, dtype=torch.float64).log()
    query, key = torch.eye(len(rows)), scores.nan_to_num(neginf=-1e9).T
    query, key = (x[None, None].double() for x in (query, key))
    cache.attend(attention, (query, *cache.append(key, key)))
    return cache.positions[0, 0].tolist()


class TestWrittenOut:
    def test_h2o_keeps_what_received_most_and_the_latest(self):
        # Received: 0.9, 1.3, 0.3, 1.1, 0.4; the latest two stay, and of the others key 1.
        rows = [[0.6, 0.4, 0, 0, 0], [0.2, 0.1, 0, 0.5, 0.2], [0.1, 0.8, 0.3, 0.6, 0.2]]
        assert weighed(gh.H2O(3), *rows) == [1, 3, 4]
        assert weighed(gh.H2O(4), *rows) == [0, 1, 3, 4]

    def test_tova_drops_what_the_last_query_looks_at_least(self):
        rows = [[0.9, 0, 0, 0.1], [0.1, 0.4, 0.3, 0.2]]
        assert weighed(gh.TOVA(3), *rows) == [1, 2, 3]
        assert weighed(gh.TOVA(2), *rows) == [1, 2]

    def test_tova_may_drop_the_newest(self):
        assert weighed(gh.TOVA(2), [0.5, 0.4, 0.1]) == [0, 1]

    def test_snapkv_keeps_the_window_and_the_neighbours_of_its_choice(self):
        last = [0.1, 0.02, 0.02, 0.06, 0.5, 0.1, 0.2]
        assert weighed(gh.SnapKV(3, window=1, kernel=1), last) == [0, 4, 6]
        # Pooled over three: 0.04, 0.047, 0.033, 0.193, 0.22, 0.2.
        assert weighed(gh.SnapKV(4, window=1, kernel=3), last) == [3, 4, 5, 6]

    def test_sinks_keep_both_ends(self):
        assert weighed(gh.Sinks(2, 3), [1 / 7] * 7) == [0, 1, 4, 5, 6]
        assert weighed(gh.Sinks(0, 3), [1 / 7] * 7) == [4, 5, 6]

    def test_of_equals_the_first_stay(self):
        assert weighed(gh.TOVA(3), [0.2] * 5) == [0, 1, 2]

    def test_heads_of_a_group_decide_together_and_groups_apart(self):
        cache, attention = EvictingCache(gh.H2O(2)), gh.Attention(score=gh.Dot())
        given = torch.tensor([[0.5, 0.1, 0.4], [0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.6, 0.1, 0.3]])
        # A head's scores are one column of its keys: query heads 0, 1 read 0; 2, 3 read 1.
        key = given.log().reshape(2, 2, 3).transpose(1, 2)[None]
        query = torch.eye(2).repeat(2, 1)[None, :, None]
        cache.attend(attention, (query, *cache.append(key, key)))
        # Received by keys 0 and 1: 0.3 and 0.45 in the first group, 0.65 and 0.15 in the second.
        assert cache.positions[0].tolist() == [[1, 2], [0, 2]]


@every_policy
class TestWhole:
    def test_a_budget_that_is_not_reached_changes_no_bit(self, policy):
        layer = self_attention(rotary=gh.Rotary(2))
        x = torch.randn(2, policy.most, D_MODEL).double()
        for chunks in ([1] * policy.most, [4, policy.most - 4]):
            cache = EvictingCache(policy)
            found = fed(layer, x, chunks, cache)
            assert torch.equal(found, fed(layer, x, chunks, gh.KeyValueCache()))
            assert cache.count == policy.most

    def test_no_more_is_ever_held(self, policy):
        layer, cache = self_attention(), EvictingCache(policy)
        for part in torch.randn(2, LENGTH, D_MODEL).double().split([1, 2, 20, 1, 1, 12], 1):
            layer(part, cache=cache)
            assert cache.count == min(cache.length, policy.most)
        keys, values = cache.held
        assert keys.shape == values.shape == (2, KV_HEADS, policy.most, 2)
        of_votes = 0 if cache._votes is None else cache._votes.nbytes
        assert cache.memory == 2 * keys.nbytes + cache.positions.nbytes + of_votes

    def test_rows_do_not_know_of_each_other(self, policy):
        layer, x = self_attention(), torch.randn(3, LENGTH, D_MODEL).double()
        whole = fed(layer, x, [5, 11, 1, 20], EvictingCache(policy))
        for row in range(3):
            alone = fed(layer, x[row : row + 1], [5, 11, 1, 20], EvictingCache(policy))
            torch.testing.assert_close(whole[row : row + 1], alone)

    @pytest.mark.parametrize("window", [None, 5])
    @pytest.mark.parametrize("chunks", CHUNKS[:3], ids=["tokens", "at once", "a prompt"])
    def test_what_pads_goes_first_and_counts_nowhere(self, policy, chunks, window):
        mask = gh.causal() if window is None else gh.causal() & gh.window(before=window)
        layer, x = self_attention(mask), torch.randn(3, LENGTH, D_MODEL).double()
        pads, cache = [0, 4, 13], EvictingCache(policy)
        found = fed(layer, x, chunks, cache, mask=~gh.prefix(pads))
        for row, pad in enumerate(pads):
            alone, left = EvictingCache(policy), pad
            parts = []
            for part in x[row : row + 1].split(chunks, 1):
                real, left = part[:, left:], max(0, left - part.shape[1])
                parts += [layer(real, cache=alone)] if real.shape[1] else []
            torch.testing.assert_close(found[row, pad:], torch.cat(parts, 1)[0])
            if window is None:
                assert torch.equal(cache.positions[row] - pad, alone.positions[0])

    def test_reordered_rows_go_on_where_they_were(self, policy):
        layer, rows = self_attention(rotary=gh.Rotary(2)), torch.tensor([2, 0, 0, 1])
        x, more = torch.randn(3, 17, D_MODEL).double(), torch.randn(4, 13, D_MODEL).double()
        cache, other = EvictingCache(policy), EvictingCache(policy)
        fed(layer, x, [13, 4], cache)
        cache.reorder(rows)
        fed(layer, x[rows], [13, 4], other)
        torch.testing.assert_close(
            fed(layer, more, [1] * 13, cache), fed(layer, more, [1] * 13, other)
        )
        assert torch.equal(cache.positions, other.positions)

    def test_what_ran_is_the_fused_kernel_on_the_keys_that_are_held(self, policy, monkeypatch):
        calls, fused = [], F.scaled_dot_product_attention

        def counted(query, key, value, **asked):
            calls.append(key.shape[-2])
            return fused(query, key, value, **asked)

        monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
        layer, x = self_attention().float(), torch.randn(1, LENGTH, D_MODEL)
        fed(layer, x, [20, *[1] * 17], EvictingCache(policy))
        assert calls == [20, *[policy.most + 1] * 17]

    def test_a_bias_of_the_call_is_read_where_the_keys_stood(self, policy):
        layer, x = self_attention(), torch.randn(1, LENGTH, D_MODEL).double()
        slopes = gh.ALiBi(HEADS)
        of_rule, of_call = EvictingCache(policy), EvictingCache(policy)
        ruled = loud(self_attention(alibi=True))
        ruled.load_state_dict(layer.state_dict())
        for part in x.split([20, 1, 1, 15], 1):
            start = of_call.length
            tile = gh.Tile(range(part.shape[1]), range(start + part.shape[1]), offset=start)
            found = layer(part, cache=of_call, bias=slopes(tile).double())
            torch.testing.assert_close(found, ruled(part, cache=of_rule))
        assert torch.equal(of_rule.positions, of_call.positions)

    def test_a_watched_model_tells_the_weights_on_what_is_held(self, policy):
        layer, cache = self_attention(), EvictingCache(policy)
        x = torch.randn(1, LENGTH, D_MODEL).double()
        fed(layer, x, [20, 17], cache)
        last = torch.randn(1, 1, D_MODEL).double()
        with gh.watch(layer, [gh.Entropy()]) as seen:
            layer(last, cache=cache)
        entropy = next(iter(seen.values())).entropy
        assert entropy.shape == (1, HEADS, 1)
        assert entropy.max() <= math.log(policy.most + 1)


class TestErrors:
    def test_an_empty_cache_holds_nothing(self):
        with pytest.raises(ValueError, match=r"this cache is empty\. Run the attention with it"):
            _ = EvictingCache(gh.TOVA(3)).held

    def test_another_number_of_rows(self):
        layer, cache = self_attention(), EvictingCache(gh.TOVA(3))
        layer(torch.randn(3, 5, D_MODEL).double(), cache=cache)
        with pytest.raises(
            ValueError, match=r"this cache must be used with 3 rows, got 2\. Begin a"
        ):
            layer(torch.randn(2, 1, D_MODEL).double(), cache=cache)

    @pytest.mark.parametrize(
        "rule",
        [
            gh.Attention(mask=gh.causal(offset=0)),
            gh.Attention(mask=gh.causal() | gh.prefix(3)),
            gh.Attention(mask=torch.ones(5, 5, dtype=torch.bool)),
            gh.Attention(bias=torch.zeros(5, 5)),
            # Depends on distance alone, and hides keys that stand between those it shows.
            gh.Attention(mask=EverySecond() & gh.causal()),
        ],
    )
    def test_a_rule_that_does_not_show_the_last_keys(self, rule):
        layer = gh.MultiHeadAttention(D_MODEL, HEADS, attention=rule)
        with pytest.raises(
            ValueError, match=r"^the attention of a cache that evicts must .*\. Pass others with"
        ):
            layer(torch.randn(1, 5, D_MODEL), cache=EvictingCache(gh.TOVA(3)))

    @pytest.mark.parametrize(
        ("make", "sentence"),
        [
            (lambda: gh.H2O(0), r"H2O\(budget=…\) must be a whole number of at least 1, got 0"),
            (lambda: gh.TOVA(-1), r"TOVA\(budget=…\) must be a whole number of at least 1"),
            (lambda: gh.SnapKV(9, 0), r"SnapKV\(window=…\) must be a whole number of at least 1"),
            (
                lambda: gh.SnapKV(9, 9),
                "must be smaller than its budget, which includes it, got window=9 of budget=9",
            ),
            (lambda: gh.SnapKV(9, 3, 4), r"SnapKV\(kernel=…\) must be an odd number .*, got 4"),
            (lambda: gh.Sinks(-1, 3), r"Sinks\(first=…\) must be a whole number of at least 0"),
            (lambda: gh.Sinks(1, 0), r"Sinks\(window=…\) must be a whole number of at least 1"),
        ],
    )
    def test_numbers_that_do_not_do(self, make, sentence):
        with pytest.raises(ValueError, match=sentence):
            make()

    def test_numbers_that_are_none(self):
        with pytest.raises(TypeError, match=r"TOVA\(budget=…\) must be a whole number.* got 2.5"):
            gh.TOVA(2.5)

    @pytest.mark.parametrize("policy", ["tova", gh.TOVA, 64])
    def test_a_policy_that_is_none(self, policy):
        with pytest.raises(TypeError, match=r"KVCache\(policy=…\) must be a policy such as TOVA"):
            gh.KVCache(policy=policy)


@every_policy
def test_a_mask_of_ones_own_is_evaluated_where_the_held_keys_stand_in_the_text(policy):
    layer, x = self_attention(), torch.randn(2, LENGTH, D_MODEL).double()
    apart = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    found = []
    for mask in (EverySecond(), apart % 2 == 0):
        cache = EvictingCache(policy)
        found.append(
            torch.cat(
                [
                    layer(
                        x[:, start:stop],
                        cache=cache,
                        mask=mask if isinstance(mask, gh.Mask) else mask[start:stop, :stop],
                    )
                    for start, stop in ((0, 13), (13, 14), (14, 19), (19, LENGTH))
                ],
                1,
            )
        )
    torch.testing.assert_close(*found)
