"""Circuits of trained models: what parts say, and what ablation and path patching confirm."""

import pytest
import torch
from torch.nn import functional as F

import glasshead as gh
from glasshead.models.pretrained import load_llama2c
from glasshead.tasks.story_model import FOLDER
from glasshead.tasks.tokenizers.pretrained import llama2c_tokenizer
from glasshead.tasks.write import WRITE

NAMES = 20
AND, WENT, GAVE, TO, BEGIN = range(NAMES, NAMES + 5)
END = 7


def sentences(rows, generator):
    """Rows of "X and Y went, Y gave to", the name that comes next, X, and the other one, Y."""
    both = torch.rand(rows, NAMES, generator=generator).argsort(1)[:, :2]
    first = torch.randint(2, (rows,), generator=generator).bool()
    subject, other = (torch.where(one, both[:, 0], both[:, 1]) for one in (first, ~first))
    words = {0: BEGIN, 2: AND, 4: WENT, 6: GAVE, END: TO}
    text = torch.empty(rows, END + 1, dtype=torch.long)
    for place, word in words.items():
        text[:, place] = word
    text[:, 1], text[:, 3], text[:, 5] = both[:, 0], both[:, 1], subject
    return text, other, subject


def trained(steps=1500):
    """A model that has learned to name the other one."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    config = gh.LanguageModelConfig(
        vocab_size=NAMES + 5,
        context_length=END + 1,
        d_model=48,
        num_heads=2,
        num_layers=3,
        feed_forward="none",
        tied=False,
        dropout=0.0,
    )
    model = gh.LanguageModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    slower = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(steps):
        text, other, _ = sentences(128, generator)
        loss = F.cross_entropy(model(text)[:, -1], other)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slower.step()
    return model.eval()


@pytest.mark.slow
def test_the_circuit_of_indirect_objects_is_found_and_confirmed():
    model, rows = trained(), range(61)
    text, other, subject = sentences(len(rows), torch.Generator().manual_seed(99))

    @torch.no_grad()
    def difference():
        logits = model(text)[:, -1]
        return float((logits[rows, other] - logits[rows, subject]).mean())

    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        assert bool((model(text)[:, -1].argmax(-1) == other).all())
    split = [gh.logit_parts(seen, int(other[row]), int(subject[row]), batch=row) for row in rows]
    parts = torch.stack([one.parts for one in split]).mean(0)
    whole = difference()
    assert float(parts.sum()) == pytest.approx(whole, rel=1e-4)
    # Of the last layer the head that writes most is the one whose ablation costs most.
    last = list(seen)[-1]
    costs = {}
    for head in range(2):
        with gh.ablate(model, {last: [head]}):
            costs[f"{last} head {head}"] = whole - difference()
    written = dict(zip(split[0].names, parts.tolist(), strict=True))
    best = max(costs, key=written.__getitem__)
    assert best == max(costs, key=costs.__getitem__)
    assert costs[best] == pytest.approx(written[best], rel=0.25)
    mover = next(one for one in split[0].components if str(one) == best)
    # Its keys or queries are fed most by the head whose path costs the most of it.
    fed = {}
    for row in rows:
        weights = seen[mover.name].weights[row, mover.head, END]
        scores = gh.score_parts(seen, mover.name, head=mover.head, query=END, batch=row)
        for side in ("key", "query"):
            contrast = scores.contrast(int(weights.argmax()), side=side)
            for one, part in zip(scores.components, contrast.tolist(), strict=True):
                if one.head is not None:
                    fed[str(one), side] = fed.get((str(one), side), 0.0) + part
    paths = {}
    for component, side in fed:
        patch = gh.PatchPart(seen, component, side=side, heads=[mover.head])
        with gh.intervene(model, {mover.name: patch}):
            paths[component, side] = whole - difference()
    assert max(fed, key=fed.__getitem__) == max(paths, key=paths.__getitem__)


PERIOD, ROWS = 11, 3


def highest(scores, count):
    """The layer and the number of the heads with the highest scores."""
    order = scores.nan_to_num(-1.0).flatten().argsort(descending=True)[:count].tolist()
    return [divmod(place, scores.shape[1]) for place in order]


def weight_on_what_followed(model, text, name, head):
    """Mean weight of a head on the token that followed the query's token the last time."""
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(text)
    rows = seen[name].weights[:, head, PERIOD : 2 * PERIOD - 1, 1:PERIOD]
    return float(rows.diagonal(0, 1, 2).mean())


def test_previous_token_heads_feed_the_keys_of_the_story_models_induction_head():
    model = WRITE.load(FOLDER)[0].eval()
    text = gh.repeated_random_tokens(model.config.vocab_size, PERIOD, ROWS, 3, times=2)
    roles = gh.head_roles(model, text).scores
    ((layer, head),) = highest(roles["induction"], 1)
    before = {
        f"blocks.{layer}.attention head {head}" for layer, head in highest(roles["previous"], 2)
    }
    name = f"blocks.{layer}.attention"
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(text)
    fed, whole = {}, 0.0
    for row in range(ROWS):
        for query in range(PERIOD, 2 * PERIOD - 1):
            scores = gh.score_parts(seen, name, head=head, query=query, batch=row)
            # The key that followed this token the last time, against all others.
            contrast = scores.contrast(query - PERIOD + 1)
            whole += float(contrast.sum())
            for one, part in zip(scores.names, contrast.tolist(), strict=True):
                fed[one] = fed.get(one, 0.0) + part
    assert sum(fed[one] for one in before) >= 0.8 * whole
    looked = weight_on_what_followed(model, text, name, head)
    assert looked > 0.7
    without = {}
    for one in fed:
        if " head " in one:
            patch = gh.PatchPart(seen, one, side="key", heads=[head])
            with gh.intervene(model, {name: patch}):
                without[one] = weight_on_what_followed(model, text, name, head)
    first = max(fed, key=fed.__getitem__)
    assert first in before
    assert min(without, key=without.__getitem__) == first
    assert without[first] < 0.4 * looked
    assert all(without[one] > 0.85 * looked for one in without if one != first)


def test_a_model_that_does_not_copy_has_no_induction_head(data_folder):
    model = load_llama2c(data_folder / "stories260K" / "stories260K.bin").eval()
    text = gh.repeated_random_tokens(model.config.vocab_size, PERIOD, ROWS, 3, times=2)
    with torch.no_grad():
        copied = model(text)[:, PERIOD:-1].argmax(-1) == text[:, PERIOD + 1 :]
    assert float(copied.float().mean()) < 0.05
    roles = gh.head_roles(model, text).scores
    assert float(roles["previous"].max()) > 0.7
    assert float(roles["induction"].nan_to_num(-1.0).max()) < 0.2


def test_the_next_word_of_a_story_is_traced_to_the_word_that_it_copies(data_folder):
    file = data_folder / "stories260K" / "stories260K.bin"
    model = load_llama2c(file).eval()
    tokenizer = llama2c_tokenizer(file.with_name("tok512.bin"))
    story = "Lily and her mom went to the park. There she saw a dog. The dog was sad. Lily gave the"
    text = torch.tensor([tokenizer.encode(story)])
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        logits = model(text)
    parts = gh.logit_parts(seen)
    assert parts.token == int(logits[0, -1].argmax())
    last = [one for one in parts.components if one.name == list(seen)[-1] and one.head is not None]
    best = max(last, key=lambda one: float(parts.parts[parts.components.index(one)]))
    # The head copies "do" from "dog".
    assert int(text[0, int(parts.sources(best).argmax())]) == parts.token
    costs = []
    for one in last:
        with torch.no_grad(), gh.ablate(model, {one.name: [one.head]}):
            costs.append(float(logits[0, -1, parts.token] - model(text)[0, -1, parts.token]))
    assert last[costs.index(max(costs))] == best
