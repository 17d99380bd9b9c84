"""Alignment: the decoder's weights on the text, of whole words, at the moment of writing."""

from itertools import pairwise

import pytest
import torch

from glasshead.models.translator import TranslatorSteps
from glasshead.statistics import PooledMap
from glasshead.tasks.translate import TextTranslator, Translation, align, cross_attention
from glasshead.watching import watch
from translated import translated

GERMAN, ENGLISH = "Kannst du diesen Satz übersetzen?", "Can you translate this sentence?"
GERMAN_WORDS = ("Kannst", "du", "diesen", "Satz", "übersetzen", "?")
ENGLISH_WORDS = ("Can", "you", "translate", "this", "sentence", "?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def translator(folder):
    run = translated(folder / "run", "num_decoder_layers=2", "vocabulary=600")
    return TextTranslator.load(run.path)


@pytest.fixture(scope="module")
def of_words(folder):
    run = translated(folder / "words", "tokenizer=words", "num_decoder_layers=2", "vocabulary=999")
    return TextTranslator.load(run.path)


@pytest.fixture(scope="module")
def of_bytes(folder):
    return TextTranslator.load(translated(folder / "bytes", "vocabulary=260").path)


def translation_of(translator, source, target):
    """As if the model had written the target."""
    tokens = [tuple(translator.tokenizer.encode(text)) for text in (source, target)]
    return Translation(source, target, *tokens)


def dense(translator, translation, layer):
    """All weights of a layer's attention to the text, `[heads, target, source]`, by its trace."""
    attention, seen = translator.model.decoder[layer].cross_attention, {}
    hook = attention.register_forward_pre_hook(
        lambda _, given, named: seen.update(query=given[0], **named), with_kwargs=True
    )
    source, target = torch.tensor([translation.source_tokens]), [*translation.tokens[:-1]]
    shown = torch.tensor([[translator.tokenizer.start_id, *target]])
    with torch.no_grad():
        translator.model(source, torch.tensor([source.shape[1]]), shown)
        hook.remove()
        return attention.trace(seen["query"], seen["key"], mask=seen["mask"]).weights[0]


def places(translator, text, words):
    """The tokens of each word, by the characters that `tokenizers` says each has."""
    spans, end = [], 0
    for word in words:
        begin = text.index(word, end)
        end = begin + len(word)
        spans.append((begin, end))
    offsets = translator.tokenizer.inner.encode(text, add_special_tokens=False).offsets
    return [
        [n for n, (start, stop) in enumerate(offsets) if start < end and stop > begin]
        for begin, end in spans
    ]


@pytest.mark.parametrize("layer", [None, 0, 1])
@pytest.mark.parametrize("head", [None, 0, 2])
def test_weights_are_means_over_a_words_tokens_of_sums_over_anothers(translator, layer, head):
    translation = translation_of(translator, GERMAN, ENGLISH)
    found = align(translator, translation, layer, head)
    assert (found.source, found.target) == (GERMAN_WORDS, ENGLISH_WORDS)
    weights = dense(translator, translation, 1 if layer is None else layer)
    weights = weights.mean(0) if head is None else weights[head]
    columns = places(translator, GERMAN, GERMAN_WORDS)
    rows = places(translator, ENGLISH, ENGLISH_WORDS)
    # Every token belongs to one word, and some words are several.
    for parts, tokens in ((columns, translation.source_tokens), (rows, translation.tokens)):
        assert [place for part in parts for place in part] == [*range(len(tokens))]
        assert max(map(len, parts)) == 2
    expected = [[weights[row][:, column].sum(1).mean() for column in columns] for row in rows]
    torch.testing.assert_close(found.weights, torch.tensor(expected), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.weights.sum(1), torch.ones(6))
    assert found.weights.std(0).max() > 0.01


def test_a_words_row_is_of_the_moment_in_which_it_is_written(of_words):
    """Step by step, as the model writes: row t is seen when word t - 1 is what was written last."""
    translation = translation_of(of_words, GERMAN, ENGLISH)
    found = align(of_words, translation)
    assert len(translation.tokens) == len(ENGLISH_WORDS)
    source = torch.tensor([translation.source_tokens])
    steps = TranslatorSteps(of_words.model, source, torch.tensor([source.shape[1]]))
    crossing = of_words.model.decoder[-1].cross_attention
    for row, token in enumerate([of_words.tokenizer.start_id, *translation.tokens[:-1]]):
        with watch(crossing, [PooledMap(1, source.shape[1])]) as seen:
            steps.next(torch.tensor([[token]]))
        expected = seen[""].pooled_map[0].mean(0)[0]
        torch.testing.assert_close(found.weights[row], expected, rtol=1e-4, atol=1e-4)


def test_no_row_knows_its_own_word_or_a_later_one(of_words):
    other = "Can you translate your book?"
    one, two = (align(of_words, translation_of(of_words, GERMAN, e)) for e in (ENGLISH, other))
    torch.testing.assert_close(one.weights[:4], two.weights[:4], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(one.weights[4], two.weights[4], atol=1e-4)


@pytest.mark.parametrize(
    ("text", "words"),
    [("Tür,öl", ("Tür", ",", "öl")), ("«Größe»☀ß", ("«", "Größe", "»", "☀", "ß"))],
)
def test_words_whose_letters_are_several_bytes_have_all_of_them(of_bytes, text, words):
    translation = translation_of(of_bytes, text, text)
    found = align(of_bytes, translation)
    assert found.source == found.target == words
    sizes = [len(word.encode()) for word in words]
    assert sum(sizes) == len(translation.tokens)
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    weights = dense(of_bytes, translation, 0).mean(0)
    parts = [slice(*ends) for ends in pairwise(ends)]
    expected = [[weights[row, column].sum(1).mean() for column in parts] for row in parts]
    torch.testing.assert_close(found.weights, torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_a_space_that_is_a_token_belongs_to_a_neighbour(of_bytes):
    translation = translation_of(of_bytes, "zu über", "ja")
    found = align(of_bytes, translation)
    assert (found.source, found.target) == (("zu", "über"), ("ja",))
    weights = dense(of_bytes, translation, 0).mean((0, 1))
    zu, space, bytes_of_other = weights[:2].sum(), weights[2], weights[3:].sum()
    either = [torch.stack([zu + space, bytes_of_other]), torch.stack([zu, space + bytes_of_other])]
    assert any(torch.allclose(found.weights[0], each, atol=1e-4) for each in either)


@pytest.mark.parametrize("last", [1, 2, 4, 6])
def test_half_a_letter_at_the_end_is_no_error(of_bytes, last):
    whole = translation_of(of_bytes, "Tür auf", "öl ☀")
    cut = Translation("Tür auf", "", whole.source_tokens, whole.tokens[:last])
    found = align(of_bytes, cut)
    assert found.source == ("Tür", "auf")
    torch.testing.assert_close(found.weights.sum(1), torch.ones(len(found.target)))


@pytest.mark.parametrize("text", ["rock'n'roll", "E-Mail", "isn’t", "l_2"])
def test_a_word_keeps_its_hyphens_and_apostrophes(of_bytes, text):
    found = align(of_bytes, translation_of(of_bytes, f"{text} {text}.", "yes"))
    assert found.source == (text, text, ".")


def test_pairs_are_each_word_with_what_it_looked_at_most(translator):
    found = align(translator, translation_of(translator, GERMAN, ENGLISH))
    for (word, source, weight), row, own in zip(
        found.pairs(), found.weights, ENGLISH_WORDS, strict=True
    ):
        assert word == own
        assert weight == row.max()
        assert row[GERMAN_WORDS.index(source)] == row.max()


@pytest.mark.parametrize(("source", "target"), [("", ""), (GERMAN, ""), (" ", "")])
def test_nothing_is_aligned_with_nothing(translator, source, target):
    tokens = tuple(translator.tokenizer.encode(source.strip()))
    found = align(translator, Translation(source, target, tokens, ()))
    assert (found.source, found.target, found.pairs()) == ((), (), [])
    assert found.weights.shape == (0, 0)


@pytest.mark.parametrize(
    ("layer", "head", "said"),
    [
        (2, None, "layer must be from 0 to 1, got 2"),
        (-1, None, "layer must be from 0 to 1, got -1"),
        (None, 3, "head must be from 0 to 2, got 3"),
        (0, -1, "head must be from 0 to 2, got -1"),
    ],
)
@pytest.mark.parametrize("text", [GERMAN, ""])
def test_layers_and_heads_that_are_not_there(translator, layer, head, said, text):
    translation = translation_of(translator, text, ENGLISH if text else "")
    with pytest.raises(ValueError, match=said):
        align(translator, translation, layer, head)


def test_cross_attention_is_of_every_layer_and_head_after_one_run(translator):
    translation = translation_of(translator, GERMAN, ENGLISH)
    runs = []
    hook = translator.model.register_forward_hook(lambda *_: runs.append(1))
    found = cross_attention(translator, translation)
    hook.remove()
    assert runs == [1]
    assert (found.source, found.target) == (GERMAN_WORDS, ENGLISH_WORDS)
    assert found.weights.shape == (2, 3, 6, 6)
    columns = places(translator, GERMAN, GERMAN_WORDS)
    rows = places(translator, ENGLISH, ENGLISH_WORDS)
    for layer, of_layer in enumerate(found.weights):
        for weights, own in zip(dense(translator, translation, layer), of_layer, strict=True):
            expected = [[weights[row][:, each].sum(1).mean() for each in columns] for row in rows]
            torch.testing.assert_close(own, torch.tensor(expected), rtol=1e-4, atol=1e-4)
    assert found.weights.flatten(0, 1).std(0).max() > 0.01
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(2, 3, 6))


@pytest.mark.parametrize("layer", [None, 0, 1])
@pytest.mark.parametrize("head", [None, 0, 2])
def test_an_alignment_is_a_part_of_the_cross_attention(translator, layer, head):
    translation = translation_of(translator, GERMAN, ENGLISH)
    part, found = (
        cross_attention(translator, translation).of(layer, head),
        align(translator, translation, layer, head),
    )
    assert (part.source, part.target) == (found.source, found.target)
    assert torch.equal(part.weights, found.weights)


@pytest.mark.parametrize(("text", "words"), [(GERMAN, GERMAN_WORDS), ("", ())])
def test_nothing_was_looked_at_for_no_words(translator, text, words):
    found = cross_attention(translator, translation_of(translator, text, ""))
    assert (found.source, found.target) == (words, ())
    assert found.weights.shape == (2, 3, 0, len(words))
