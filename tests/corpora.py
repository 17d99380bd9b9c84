"""A model of two attentions, documents for it, and what a corpus of them is by hand."""

import math
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh

WIDTH, HEADS = 6, {"first": 3, "second": 2}
EDGES = (0, 1, 3, math.inf)
POSITIONS = 7
LENGTHS = (5, 11, 7, 3, 11, 1)
STATISTICS = {
    "entropy": gh.Entropy(),
    "largest": gh.MaxWeight(),
    "sink": gh.MassOn([0, 2]),
    "distance": gh.MeanDistance(),
    "normalizer": gh.LogSumExp(),
    "received": gh.Received(),
    "score": gh.MaxScore(),
    "distances": gh.DistanceHistogram(EDGES),
}


class Heads(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key = (nn.Linear(WIDTH, 5 * heads) for _ in range(2))

    def split(self, x):
        return x.unflatten(-1, (self.heads, 5)).transpose(-3, -2)

    def forward(self, x, mask):
        query, key = self.split(self.query(x)), self.split(self.key(x))
        return F.scaled_dot_product_attention(query, key, key, attn_mask=mask)


class Model(nn.Module):
    """Two causal attentions beside each other, of unlike many heads."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = (Heads(heads) for heads in HEADS.values())

    def forward(self, x, real=None):
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        if real is not None:
            mask = mask & real.bool()[:, None, None]
        return self.first(x, mask), self.second(x, mask)


def documents(lengths=LENGTHS):
    torch.manual_seed(4)
    return [2 * torch.randn(length, WIDTH) for length in lengths]


def padded(some, side):
    """Documents as a batch, with large numbers where there is none, and its mask."""
    longest = max(map(len, some))
    batch = torch.full((len(some), longest, WIDTH), 9.0)
    real = torch.zeros(len(some), longest, dtype=torch.long)
    for row, document in enumerate(some):
        begin = 0 if side == "right" else longest - len(document)
        batch[row, begin : begin + len(document)] = document
        real[row, begin : begin + len(document)] = 1
    return batch, real


def weights(model, document):
    """P and the scores of a document, in float64, by layer."""
    found = {}
    for name in HEADS:
        layer = getattr(model, name)
        query, key = (
            layer.split(make(document)[None]).detach().double()[0]
            for make in (layer.query, layer.key)
        )
        scores = (query @ key.mT / math.sqrt(5)).masked_fill(
            ~torch.ones(len(document), len(document), dtype=torch.bool).tril(), -torch.inf
        )
        found[name] = scores.softmax(-1), scores
    return found


def by_hand(model, some):
    """Each statistic of a corpus, by layer, from the weights of each document."""
    seen = [weights(model, document) for document in some]
    return {name: _of_layer([one[name] for one in seen]) for name in HEADS}


def _of_layer(seen):
    P = [p for p, _ in seen]
    total, count = torch.zeros(P[0].shape[0], POSITIONS).double(), torch.zeros(POSITIONS)
    bins = 0
    for p in P:
        mass = p.sum(-2)[:, :POSITIONS]
        total[:, : mass.shape[-1]] += mass
        count[: mass.shape[-1]] += 1
        bins = bins + torch.stack(
            [
                (p * ((_distance(p) >= low) & (_distance(p) < high))).sum((-2, -1))
                for low, high in pairwise(EDGES)
            ],
            -1,
        )

    def mean(numbers):
        return torch.cat(numbers, -1).mean(-1)

    longest = min(POSITIONS, max(p.shape[-1] for p in P))
    return {
        "entropy": mean([-torch.special.xlogy(p, p).sum(-1) for p in P]),
        "largest": mean([p.amax(-1) for p in P]),
        "sink": mean([p[..., [key for key in (0, 2) if key < p.shape[-1]]].sum(-1) for p in P]),
        "distance": mean([(p * _distance(p)).sum(-1) for p in P]),
        "normalizer": mean([scores.logsumexp(-1) for _, scores in seen]),
        "received": (total / count)[:, :longest],
        "score": torch.stack([scores.amax((-2, -1)) for _, scores in seen]).amax(0),
        "distances": bins / sum(p.shape[-1] for p in P),
    }


def _distance(p):
    places = torch.arange(p.shape[-1])
    return (places[:, None] - places).abs()


def read(corpus, model, some, side=None):
    """Let a model read documents, as one padded batch, or each on its own, and add what it did."""
    batches = [padded(some, side)] if side else [(document[None], None) for document in some]
    for batch, real in batches:
        statistics = corpus.statistics if real is None else corpus.statistics_of(real)
        with torch.no_grad(), gh.watch(model, statistics) as seen:
            model(batch, real)
        corpus.update(seen, real)


def corpus(**options):
    return gh.CorpusStatistics(STATISTICS, positions=POSITIONS, **options)


def assert_equal(result, right, **tolerance):
    """Each statistic of a result, to rounding."""
    tolerance = tolerance or {"atol": 1e-5, "rtol": 1e-5}
    assert list(result) == list(right)
    for layer, own in right.items():
        assert set(result[layer]) == set(own)
        for name, value in own.items():
            found = result[layer][name]
            assert found.dtype == torch.float64
            torch.testing.assert_close(found, value.double(), **tolerance, msg=f"{layer} {name}")
