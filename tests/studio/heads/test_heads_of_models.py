"""Heads of each kind of model, and of texts that are short, long, or beyond all numbers."""

import pytest
import torch

import glasshead as gh
from classified import classified
from glasshead.models.saving import write_weights
from glasshead.statistics import PooledMap
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.views import heads
from glasshead.tasks.classify import TextClassifier
from glasshead.tasks.translate import TextTranslator
from glasshead.tasks.write import Writer
from pretrained_folders import llama_folder
from studio.heads.heads_seen import HEADS, LAYERS, STORY
from translated import translated
from written import written


def test_a_short_text_has_small_maps_that_are_whole(studio):
    text = studio.texts.add("a dog")
    reading = heads.reading_of(studio, text, Work())
    maps = heads.small_maps(reading)
    assert maps.shape[1:] == (reading.length, reading.length + 1)
    torch.testing.assert_close(maps[HEADS + 1, :, :-1], heads.whole_map(reading, 1, 1))
    torch.testing.assert_close(maps[..., 0], maps[..., -1])


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    run = written(tmp_path / "run")
    model = Writer.load(run.path).model
    with torch.no_grad():
        for parameter in model.blocks[0].attention.parameters():
            parameter.mul_(1e25)
    write_weights(model, run.weights)
    studio = Studio(run.path)
    text = studio.texts.add(STORY)
    with pytest.raises(Refusal, match=r"the scores grow beyond all numbers: train the model"):
        heads.summary(heads.reading_of(studio, text, Work()))


def test_one_token_has_heads_without_roles(studio):
    text = studio.texts.add("a")
    told = heads.summary(heads.reading_of(studio, text, Work()))
    assert len(told["tokens"]) == 1
    assert told["entropy"] == [[0.0] * HEADS] * LAYERS
    assert all(score is None for rows in told["scores"].values() for row in rows for score in row)


def test_a_classifier_reads_the_ends_of_a_long_text(tmp_path):
    folder = classified(tmp_path / "run", "first=5", "last=3").path
    studio = Studio(folder)
    text = "good bad dull plot film music the a is not never so was"
    reading = heads.reading_of(studio, studio.texts.add(text), Work())
    tokens = TextClassifier.load(folder).tokenizer.encode(text)
    assert (reading.tokens.tolist(), reading.of) == (tokens[:5] + tokens[-3:], 13)
    assert reading.layers == ("blocks.0.attention", "blocks.1.attention")
    classifier = TextClassifier.load(folder)
    with torch.inference_mode(), gh.watch(classifier.model, keep="weights") as seen:
        classifier.classify([text])
    expected = seen["blocks.1.attention"].weights.dense()[0, 2]
    torch.testing.assert_close(heads.whole_map(reading, 1, 2), expected, atol=1e-6, rtol=1e-5)


def test_a_translator_reads_its_source(tmp_path):
    folder = translated(tmp_path / "run", "num_layers=2").path
    studio = Studio(folder)
    sentence = "Der Mann liest ein Buch."
    reading = heads.reading_of(studio, studio.texts.add(sentence), Work())
    assert reading.layers == ("encoder.0.attention", "encoder.1.attention")
    translator = TextTranslator.load(folder)
    tokens = translator.tokenizer.encode(sentence)
    assert reading.tokens.tolist() == tokens
    with (
        torch.inference_mode(),
        gh.watch(translator.model, [PooledMap(len(tokens), len(tokens))]) as seen,
    ):
        translator.model.encode(torch.tensor([tokens]), torch.tensor([len(tokens)]))
    expected = seen["encoder.1.attention"].pooled_map[0, 2]
    torch.testing.assert_close(heads.whole_map(reading, 1, 2), expected, atol=1e-6, rtol=1e-5)


def test_a_model_of_others_reads_with_what_stands_around_a_text(tmp_path):
    studio = Studio(llama_folder(tmp_path / "model"))
    reading = heads.reading_of(studio, studio.texts.add("ab abc a c b"), Work())
    assert reading.words[0] == "<s>"
    assert "".join(reading.words[1:]).strip() == "ab abc a c b"
    torch.testing.assert_close(heads.whole_map(reading, 1, 2).sum(-1), torch.ones(reading.length))


def test_a_text_is_cut_to_what_is_drawn(folder):
    studio = Studio(folder, Limits(heads=11))
    reading = heads.reading_of(studio, studio.texts.add(STORY), Work())
    assert reading.length == 11
    assert reading.of == len(Writer.load(folder).tokenizer.encode(STORY)) > 11
