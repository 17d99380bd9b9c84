"""Each text of a padded batch is seen as it is alone, in every architecture and any layers."""

from functools import cache

import pytest
import single_texts as single
import torch
from architectures import ARCHITECTURES

import glasshead as gh

pytest.importorskip("transformers")
pytest.importorskip("pandas")

NEW, BEAMS = 4, 3
PROMPTS = (7, 3, 1)
MODES = [(name, mode) for name, one in ARCHITECTURES.items() for mode in one.modes]
FIRST = [(name, one.modes[0]) for name, one in ARCHITECTURES.items()]
WRITERS = [(name, mode) for name, mode in FIRST if ARCHITECTURES[name].writes]


def sides(name, mode):
    """All of them in the first mode of an architecture, one in the other."""
    if ARCHITECTURES[name].kind == "image":
        return [None]
    if (name, mode) not in FIRST:
        return ["both"]
    return [None, "left", "right", "both", *(["ones"] if name in ("llama", "bert", "t5") else [])]


def chosen(names):
    """Each architecture with each choice of layers that is not much like another."""
    found = []
    for name in names:
        architecture = ARCHITECTURES[name]
        try:
            model = architecture.model(architecture.modes[0])
        except pytest.skip.Exception:
            continue
        choices = single.choices(architecture, model)
        found += [(name, one) for one in choices if architecture.has_decoder or one == "some"]
    return found


def stacks(architecture, names):
    """The layers that attend to the text of the layer below, by the pattern of their names."""
    return {
        pattern.partition("#")[0].format("*"): names[output]
        for output, pattern in architecture.attentions.items()
        if output != "cross_attentions"
    }


@cache
def expected_of(name, side):
    """What the texts say one by one."""
    return single.dense_of(single.batch_of(ARCHITECTURES[name], side))


def read(name, mode, side, layers=None):
    architecture = ARCHITECTURES[name]
    model, given = architecture.model(mode), single.batch_of(architecture, side).given()
    statistics = single.STATISTICS | single.OF_ONE_CALL
    with torch.no_grad(), gh.watch(model, statistics, layers=layers, keep="weights") as seen:
        model(**given)
    return seen


@pytest.mark.parametrize(
    ("name", "mode", "side"), [(*one, side) for one in MODES for side in sides(*one)]
)
def test_a_padded_text_is_seen_as_it_is_alone(name, mode, side):
    architecture = ARCHITECTURES[name]
    expected = expected_of(name, side)
    seen = read(name, mode, side)
    assert set(seen.layers) == set(expected)
    for layer, one in expected.items():
        single.check(seen.layers[layer], one)
        single.check_one_call(seen.layers[layer], one)
    single.check_summary(seen, expected)
    single.check_frame(seen, expected)
    names = architecture.layers(architecture.model(mode))
    for pattern, stack in stacks(architecture, names).items():
        single.check_rollout(seen, [expected[layer] for layer in stack], layers=pattern)


@pytest.mark.parametrize(("name", "which"), chosen(ARCHITECTURES))
def test_some_layers_are_seen_as_all_are(name, which):
    architecture = ARCHITECTURES[name]
    mode, side = architecture.modes[0], None if architecture.kind == "image" else "left"
    layers, names = single.choices(architecture, architecture.model(mode))[which]
    expected = {layer: expected_of(name, side)[layer] for layer in names}
    seen = read(name, mode, side, layers)
    assert set(seen.layers) == set(names)
    for layer, one in expected.items():
        single.check(seen.layers[layer], one)
    single.check_summary(seen, expected)
    single.check_frame(seen, expected)


class Reader:
    """A logits processor that changes nothing and keeps the tokens read at each step."""

    def __init__(self):
        self.texts = []

    def __call__(self, tokens, scores):
        self.texts.append(tokens.clone())
        return scores


@cache
def expected_of_written(name, side, beams, written):
    """What texts that were written say one by one, in one reading."""
    batch = prompts(name, side).repeated(beams).going_on(torch.tensor(written))
    return single.dense_of(batch)


def prompts(name, side):
    return single.batch_of(ARCHITECTURES[name], side, PROMPTS)


def write(name, mode, side, layers=None, beams=1, cache=None):
    """What is seen while texts are written, and what was read at each step."""
    architecture, reader = ARCHITECTURES[name], Reader()
    model = architecture.model(mode)
    with gh.watch(model, single.STATISTICS, layers=layers, keep="weights") as seen:
        model.generate(
            **prompts(name, side).prompt(),
            max_new_tokens=NEW,
            do_sample=False,
            num_beams=beams,
            cache_implementation=cache,
            logits_processor=[reader],
        )
    read = [tuple(map(tuple, tokens.tolist())) for tokens in reader.texts]
    assert len(read) == NEW
    return seen, read


def check_steps(name, side, beams, seen, read):
    """Each step is of the texts as they were at that step."""
    begun = len(read[0][0])
    for layer, watched in seen.items():
        if "encoder." in layer:
            single.check(watched, expected_of_written(name, side, 1, read[0][::beams])[layer])
            continue
        positions = [0, *range(begun, begun + NEW - 1)]
        assert [call.position for call in watched] == positions
        for call, tokens in zip(watched, read, strict=True):
            # Without beams the texts of a step are the beginnings of the last.
            texts = expected_of_written(name, side, beams, tokens if beams > 1 else read[-1])
            single.check(call, texts[layer].part(call.position, call.end, call.keys))


@pytest.mark.parametrize(
    ("name", "mode", "cache"),
    [(*one, None) for one in WRITERS] + [(name, "eager", "static") for name, _ in WRITERS],
)
def test_a_text_that_is_written_is_seen_as_one_that_is_read(name, mode, cache):
    architecture = ARCHITECTURES[name]
    seen, read = write(name, mode, "left", cache=cache)
    expected = expected_of_written(name, "left", 1, read[-1])
    assert set(seen) == set(expected)
    for layer, one in expected.items():
        single.check(seen[layer], one)
    single.check_summary(seen, expected)
    single.check_frame(seen, expected)
    names = architecture.layers(architecture.model(mode))
    for pattern, stack in stacks(architecture, names).items():
        single.check_rollout(seen, [expected[layer] for layer in stack], layers=pattern)


@pytest.mark.parametrize(("name", "which"), chosen(dict(WRITERS)))
def test_some_layers_are_seen_at_each_step(name, which):
    architecture = ARCHITECTURES[name]
    mode, side = architecture.modes[0], "right" if architecture.has_decoder else "left"
    layers, names = single.choices(architecture, architecture.model(mode))[which]
    seen, read = write(name, mode, side, layers)
    assert set(seen) == set(names)
    check_steps(name, side, 1, seen, read)


@pytest.mark.parametrize(("name", "mode"), WRITERS)
def test_beams_are_seen_at_each_step(name, mode):
    seen, read = write(name, mode, "left", beams=BEAMS)
    check_steps(name, "left", BEAMS, seen, read)


@pytest.mark.parametrize("name", [n for n in dict(WRITERS) if ARCHITECTURES[n].has_decoder])
def test_beams_cross_to_their_source_at_each_step(name):
    architecture = ARCHITECTURES[name]
    layers, names = single.choices(architecture, architecture.model("sdpa"))["crossing"]
    seen, read = write(name, "sdpa", "both", layers, BEAMS)
    assert set(seen) == set(names)
    check_steps(name, "both", BEAMS, seen, read)
