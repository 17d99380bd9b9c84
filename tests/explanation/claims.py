"""What sentences of an explanation say, each with the check of it against the trace."""

import itertools
import math
import re

import pytest
import torch
from explanation_told import figure

import glasshead as gh

WORDS = ("ant", "bee", "cow", "doe", "elk", "fox", "gnu", "hen", "ibis", "jay", "kite", "lark")
DIRECTION = re.compile(
    r"\d|√|larg|small|most|least|more|less|above|below|equal|alone|all\b|none|nothing|vanish|near|far"
    r"|high|low|only|first|exactly|inverted|same|single|grow|average|every|may see|−∞",
    re.IGNORECASE,
)
# What holds of any numbers.
GENERAL = (
    "(A softmax taken literally",
    "(A vector of zeros scores 0.)",
    "(In training, the derivative of the softmax stands in",
    "A model learns by derivatives",
    "Divided by √d they lie about 1",
    "Dividing scores by √d keeps them",
    "Every other word is treated in just the same way",
    "Every value is multiplied by the weight",
    "Every word brings three vectors",
    "First, comparing",
    "For a softmax the derivative depends only on the weights",
    "Here it is shown for one word",
    "If the numbers in the vectors are independent, with mean 0",
    "In torch.nn.MultiheadAttention True hides",
    "Most models multiply them by β = 1/√d",
    "Nothing has to be read",
    "Numbers are computed with more digits",
    "Now let the same scores grow",
    "Scaling is explained by how one weight grows",
    "Scores can be of any size",
    "Self-attention lets every word look",
    "Several heads look for",
    "So far we followed one word.",
    "That changes no weight",
    "The mask hides padding",
    "The mask ~causal() says which words",
    "The same with the five scores",
    "The sparsemax subtracts one threshold",
    "The whole mask, a row for each query",
    "The query of “",
    "What matters is often near",
    "Five scores, as they are",
    "The scores of “",
    "Whatever their numbers are",
    "When it is used, after training",
    "Why a cap",
    "Why a mixture and not a choice",
    "Why a sink",
    "Why at once",
    "Why by chance",
    "Why cut off",
    "Why divide by the lengths",
    "Why each by itself",
    "Why models are seldom",
    "Why powers of e",
    "Why several heads",
    "Why this matters",
    "Why √d",
    "Why −∞",
)
NUMBER = r"(-?[\d.]+(?:e[+-]?\d+)?)"
CLAIMS = []
"""Patterns of sentences, each with a function of what is told and of the pattern's groups."""


def claim(pattern):
    """Register the check of a sentence; NUM in it is a number, WORD a key or "itself"."""
    filled = pattern.replace("NUM", NUMBER).replace("WORD", "(itself|“\\w+”)")

    def kept(check):
        CLAIMS.append((re.compile(filled), check))
        return check

    return kept


def conjuncts(mask):
    return mask.conjuncts or [mask]


def shown(mask, length):
    """The pairs that a mask shows, by its picture."""
    lines = mask.picture(queries=length, keys=length).splitlines()
    return torch.tensor([[sign == "■" for sign in line] for line in lines])


def distances(told):
    """How far each key stands after each query."""
    places = torch.arange(len(told.visible))
    return places[None] - places[:, None]


def check(told, sentence):
    """Check a sentence against the trace; return whether it is one that is known."""
    for pattern, checks in CLAIMS:
        if said := pattern.fullmatch(sentence):
            checks(told, *said.groups())
            return True
    return sentence.startswith(GENERAL) or not DIRECTION.search(sentence)


@claim(r"“\w+” looks most at WORD \(weight NUM\), and next at WORD \(NUM\)\.")
def _(told, first, weight, second, other):
    assert told.ranked()[:2] == [(first, weight), (second, other)]
    assert float(weight) > float(other)


@claim(r"“\w+” gives NUM keys the same weight, NUM, and no key a larger one: (.+)\.")
def _(told, count, weight, names):
    alike = [WORDS[key] for key, w in enumerate(told.row("weights")) if figure(w.item()) == weight]
    assert names.removesuffix(", …").split(", ") == alike[:8]
    assert int(count) == len(alike) > 1
    assert weight == told.ranked()[0][1]


@claim(r"“\w+” looks at WORD alone, with a weight of NUM\.")
def _(told, name, weight):
    assert told.ranked()[0] == (name, weight)
    assert (told.row("weights") > 0).sum() == 1


@claim(r"“\w+” can see no key at all, .* all its weights are 0\.")
def _(told):
    assert told.seen == []
    assert not told.row("weights").any()


@claim(
    r"The score of “(\w+)” is NUM above that of “(\w+)”, so its weight is e\^NUM = NUM times "
    r"as large, whatever the other scores are\."
)
def _(told, first, difference, second, power, quotient):
    one, other = WORDS.index(first), WORDS.index(second)
    scores, weights = told.row("masked"), told.row("weights")
    assert difference == power == figure((scores[one] - scores[other]).item())
    assert quotient == figure((weights[one] / weights[other]).item())
    assert float(quotient) == pytest.approx(math.exp(float(power)), rel=1e-3)
    assert weights[one] == weights.max()


@claim(r"The softmax turns them into shares: .* so that the shares add up to 1\.")
def _(told):
    torch.testing.assert_close(told.row("weights").sum().item(), 1.0)


@claim(r"As in any softmax, .* add up to less than 1\.")
def _(told):
    assert told.row("weights").sum() < 1 + 1e-12
    assert told.problem.normalizer.sink > -torch.inf


@claim(r"This softmax has one place more .* with the score NUM\.")
def _(told, sink):
    assert sink == figure(told.problem.normalizer.sink)


@claim(r"The proportions between the keys stay the same\.")
def _(told):
    weights, ordinary = told.row("weights"), told.row("masked").softmax(-1)
    torch.testing.assert_close(weights / weights.sum(), ordinary)


@claim(r"With a sink .* here NUM of the attention goes to no key\.")
def _(told, rest):
    assert rest == figure(1 - math.fsum(told.row("weights").tolist()))


@claim(r"The weights need not add up to 1; here they add up to NUM\.")
def _(told, total):
    assert total == figure(math.fsum(told.row("weights").tolist()))


@claim(r"The sigmoid looks at each key by itself: .*")
def _(told):
    expected = torch.sigmoid(told.row("masked")[told.seen])
    torch.testing.assert_close(told.row("weights")[told.seen], expected)


@claim(r"Visible keys that get nothing at all here: NUM of NUM\.")
@claim(r"Why halfway: .* \(here to NUM of NUM visible\); .*")
def _(told, zeros, seen):
    weights = told.row("weights")[told.seen]
    assert (int(zeros), int(seen)) == ((weights == 0).sum(), len(weights))


@claim(r"What is left above 0 is the weight p; whatever falls below gets exactly 0\.")
@claim(r"Whatever falls below gets exactly 0\.")
def _(told):
    weights, scores = told.row("weights")[told.seen], told.row("masked")[told.seen]
    assert (scores[weights > 0].min() > scores[weights == 0]).all()


@claim(r"τ is chosen so that the weights add up to 1: .* here NUM\.")
def _(told, count):
    weights, scores = told.row("weights"), told.row("masked")
    assert int(count) == (weights > 0).sum()
    threshold = (scores[weights > 0].sum() - 1) / int(count)
    torch.testing.assert_close(weights, (scores - threshold).clamp(min=0))


@claim(r"τ is found by a search, so that the weights p add up to 1: here it is NUM\.")
def _(told, threshold):
    expected = (told.row("masked") / 2 - float(threshold)).clamp(min=0).square()
    torch.testing.assert_close(told.row("weights"), expected, rtol=0, atol=2e-3)


@claim(r"This is 1\.5-entmax, .* squared\.")
def _(told):
    assert isinstance(told.problem.normalizer, gh.Entmax15)


@claim(r"These scores are far from 0, .* m = NUM, is therefore first subtracted .*")
def _(told, largest):
    assert largest == figure(told.row("masked").max().item())
    assert abs(float(largest)) > 10


@claim(r"Hard attention does not share: .*")
@claim(r"Ties go to the first\.")
@claim(r"\(In training.*|It is what a softmax becomes when its scores grow without limit\.")
def _(told):
    assert told.row("weights").tolist() == [
        float(key == told.row("masked").argmax()) for key in range(len(told.row("masked")))
    ]


@claim(r"The mask is causal: .*")
@claim(r"A model that writes text word by word needs this: .*")
def _(told):
    first, *_ = [one for one in conjuncts(told.mask) if repr(one) == "causal()"]
    assert shown(first, len(told.visible)).equal(distances(told) <= 0)


@claim(r"The mask is a window: .* \(before it: NUM; after it: NUM\)\.")
def _(told, before, after):
    apart = distances(told)
    near = (apart >= -int(before)) & (apart <= int(after))
    assert any(shown(one, len(near)).equal(near) for one in conjuncts(told.mask))


@claim(
    r"The mask has an offset: each query sees the key at its own place \+ \(NUM\), and "
    r"neighbors of that key \(before it: all; after it: NUM\)\."
)
def _(told, offset, after):
    near = distances(told) <= int(offset) + int(after)
    assert any(shown(one, len(near)).equal(near) for one in conjuncts(told.mask))


@claim(r"The mask looks inverted: .*")
def _(told):
    assert not (told.visible & (distances(told) <= 0)).any()


@claim(r"Of the NUM keys, “\w+” may see NUM; hidden from it: NUM\.")
def _(told, keys, seen, hidden):
    everything = len(told.visible), len(told.seen), len(told.visible) - len(told.seen)
    assert (int(keys), int(seen), int(hidden)) == everything


@claim(r"“\w+” may see all of the keys\.")
def _(told):
    assert told.visible.all()


@claim(r"“\w+” may see none of the keys\.")
@claim(r"Here all of them are −∞, .*")
def _(told):
    assert not told.visible[told.query].any()
    assert (told.row("masked") == -torch.inf).all()


@claim(r"“\w+” sees all of the keys; some other words do not\.")
def _(told):
    assert told.visible[told.query].all()
    assert not told.visible.all()


@claim(r"Some keys are hidden from every query\.")
def _(told):
    assert not told.visible.any(0).all()


@claim(r"−∞ (?:can earn|earns) none, .*")
def _(told):
    hidden = ~told.visible[told.query]
    assert hidden.any() or not told.visible.all()
    assert not told.row("weights")[hidden].any()


@claim(r"The ALiBi bias lowers each score, and the more so the farther .*")
def _(told):
    lowered = (told.row("capped") - told.row("masked"))[told.seen]
    far = distances(told)[told.query].abs()[told.seen]
    assert (lowered >= -1e-9).all()
    for one, two in itertools.pairwise(far.argsort()):
        assert lowered[one] < lowered[two] + 1e-9 or far[one] == far[two]


@claim(r"Every score is divided by √d, .* here d = NUM\.")
def _(told, width):
    torch.testing.assert_close(told.row("scaled"), told.row("scores") / int(width) ** 0.5)
    assert int(width) == told.problem.query.shape[-1]


@claim(r"In other words, it is multiplied by β = 1/√NUM = NUM\.")
def _(told, width, beta):
    assert (int(width), beta) == (told.problem.query.shape[-1], figure(int(width) ** -0.5))


@claim(r"If the numbers .* scores typically lie about √d from 0; here √NUM = NUM\.")
def _(told, width, root):
    assert (int(width), root) == (told.problem.query.shape[-1], figure(int(width) ** 0.5))


@claim(r"Every score is multiplied by β = NUM, the inverse temperature\.")
def _(told, beta):
    torch.testing.assert_close(told.row("scaled"), told.row("scores") * float(beta))


@claim(r"The inverse temperature β is 1 here, so the scores stay as they are\.")
def _(told):
    assert told.row("scaled").equal(told.row("scores"))


@claim(r"Most models multiply them .* the last section shows why\.")
def _(told):
    assert told.explanation.steps[-1].figures


@claim(r"The larger it is, the farther apart they lie; with 0 all of them are 0\.")
def _(told):
    apart = told.row("scores").max() - told.row("scores").min()
    assert 3 * apart >= 2 * apart
    assert (
        told.problem.softcap
        or not isinstance(told.problem.normalizer, gh.Softmax)
        or told.problem.biases
    )


@claim(r"With a large β nearly all weight goes to the best key; .* with 0 all keys .* the same\.")
def _(told):
    scores = told.row("scores")[told.seen]
    if not len(scores):
        return
    alike, large = told.with_beta(0.0), told.with_beta(1e6)
    torch.testing.assert_close(alike[told.seen], torch.full_like(scores, 1 / len(scores)))
    best = scores.max() - scores < 1e-4
    assert large[told.seen][best].sum() > 0.99


@claim(r"The scores are bent smoothly, so that none leaves the range from −NUM to NUM\.")
def _(told, low, high):
    assert low == high == figure(told.problem.softcap)
    assert told.row("capped").abs().max() <= float(high)


@claim(r"Scores that are small beside NUM pass almost unchanged, .*")
def _(told, cap):
    assert cap == figure(told.problem.softcap)
    scaled, capped = told.row("scaled"), told.row("capped")
    small = scaled.abs() < float(cap) / 10
    torch.testing.assert_close(capped[small], scaled[small], rtol=1e-2, atol=0)


@claim(r"And as the weights add up to 1, .* pulled hardest .*")
def _(told):
    torch.testing.assert_close(told.row("dropped").sum().item(), 1.0)


@claim(r"Here the mixture is a single value\.")
def _(told):
    (key,) = told.row("dropped").nonzero().flatten().tolist()
    scaled = told.row("dropped")[key] * told.vectors[2][key]
    torch.testing.assert_close(told.row("context"), scaled)


@claim(r"Nothing was looked at, so nothing is handed over: every number of c is 0\.")
def _(told):
    assert not told.row("dropped").any()
    assert not told.row("context").any()


@claim(r"In training, each weight is set to 0 .* probability NUM; .* divided by NUM .*")
def _(told, rate, kept):
    assert (rate, kept) == (figure(told.problem.dropout), figure(1 - told.problem.dropout))
    weights, dropped = told.row("weights"), told.row("dropped")
    torch.testing.assert_close(dropped, torch.where(dropped != 0, weights / float(kept), 0.0))


@claim(r"This attention has NUM heads; explained above is head NUM, counted from 0\.")
def _(told, heads, head):
    assert (int(heads), int(head)) == (told.problem.query.shape[-3], told.index[-1])


@claim(r"Each head does all of this by itself, with queries, keys and values of its own\.")
def _(told):
    assert told.problem.key.shape[-3] == told.problem.query.shape[-3]


@claim(r"Each head does .* with queries of its own; NUM heads in a row share keys and values\.")
def _(told, group):
    assert int(group) * told.problem.key.shape[-3] == told.problem.query.shape[-3]
    assert int(group) > 1


@claim(r"The row of “(\w+)” is marked; .*")
def _(told, word):
    (drawn,) = told.explanation["matrix"].figures
    assert drawn.highlight_row == told.query == WORDS.index(word)


@claim(r"P times the matrix V of all values gives all context vectors C at once\.")
def _(told):
    shown = told.explanation["matrix"].data["weights"]
    torch.testing.assert_close(shown @ told.vectors[2], told.matrix("context"))


@claim(r"Every comparison gives one number, the score s: .*")
@claim(r"Direction and length both count: .*")
def _(told):
    query, keys, _ = told.vectors
    scores = told.row("scores")
    if isinstance(told.problem.score, gh.Dot | gh.ScaledDot):
        torch.testing.assert_close(scores, keys @ query)
    assert len(scores) == len(keys)


@claim(r"Why multiply and add: .*")
def _(told):
    assert isinstance(told.problem.score, gh.Dot | gh.ScaledDot)


@claim(r"The score is the cosine of the angle .*")
def _(told):
    query, keys, _ = told.vectors
    cosines = torch.cosine_similarity(query[None], keys)
    torch.testing.assert_close(told.row("scores"), cosines, atol=1e-6, rtol=0)


@claim(r"Why a distance: .*")
@claim(r"It measures how near the two are to each other\.")
def _(told):
    query, keys, _ = told.vectors
    torch.testing.assert_close(told.row("scores"), -(keys - query).square().sum(-1))


@claim(r"Only the NUM keys that will get the largest weights are written out; .* \(NUM\) .*")
def _(told, count, others):
    written = re.findall(
        r"^s\((\w+)\)", "\n".join(told.explanation["scores"].numbers), re.MULTILINE
    )
    assert (int(count), int(others)) == (len(written), len(told.visible) - len(written))
    weights = told.row("weights")
    least = min(weights[WORDS.index(word)] for word in written)
    assert all(w <= least for key, w in enumerate(weights) if WORDS[key] not in written)


@claim(r"Only the first NUM keys are written out; the others \(NUM\) .*")
def _(told, count, others):
    assert told.seen == []
    assert len(told.explanation["scores"].numbers) == int(count)
    assert int(count) + int(others) == len(told.visible)


@claim(r"Only the keys that “\w+” may see are written out; the others \(NUM\) .*")
def _(told, others):
    assert len(told.explanation["scores"].numbers) == len(told.seen)
    assert len(told.seen) + int(others) == len(told.visible)


@claim(r"Only the NUM keys with the largest weights are shown\.")
def _(told, count):
    keys = told.explanation["sharpness"].data["jacobian_keys"]
    assert len(keys) == int(count) < len(told.seen)
    weights = told.row("weights")
    assert weights[keys].min() >= weights[[k for k in told.seen if k not in keys]].max()


@claim(r"How the weight of each row changes with the score of each column: .*")
def _(told):
    jacobian = told.explanation["sharpness"].data["jacobian"]
    assert (jacobian.diagonal() >= 0).all()
    assert (jacobian - jacobian.diag().diag() <= 0).all()


@claim(
    r"At × NUM the largest weight is NUM, and the largest derivative NUM: the largest weight "
    r"goes to 1, all others go to 0, and the derivatives vanish\."
)
def _(told, times, weight, derivative):
    grown = (told.row("masked")[told.seen] * int(times)).softmax(-1)
    assert weight == figure(grown.max().item())
    *others, largest = grown.sort().values.tolist()
    assert float(derivative) == pytest.approx(largest * math.fsum(others), rel=0.05)
    assert float(weight) >= 0.99
    assert float(derivative) <= 0.01
    assert max(others) <= 0.01


@claim(
    r"The largest scores, NUM of them, are equal or nearly equal, and their keys still share "
    r"the weight at × NUM: the largest weight is NUM, and the largest derivative NUM\."
)
def _(told, count, times, weight, derivative):
    scores = told.row("masked")[told.seen]
    grown = (scores * int(times)).softmax(-1)
    largest = grown.topk(int(count)).values
    assert largest.sum() >= 0.99
    assert largest.max() < 0.99
    assert scores.topk(int(count)).values.diff().abs().max() < 1e-4
    assert weight == figure(grown.max().item())
    assert float(derivative) == pytest.approx((grown * (1 - grown)).max().item(), rel=1e-3)


@claim(r"“\w+” sees fewer than two keys, .*")
def _(told):
    assert len(told.seen) < 2


@claim(r"The weights here were made by (\w+), whose derivative is different, .*")
def _(told, name):
    assert name == type(told.problem.normalizer).__name__
