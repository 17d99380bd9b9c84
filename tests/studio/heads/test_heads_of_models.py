"""Heads of each kind of model, and of texts that are short, long, or beyond all numbers.

A BERT as wide as MiniLM has heads, in a browser.
"""

from itertools import pairwise

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
from pretrained_folders import bert_folder, llama_folder
from studio.conftest import LANGUAGES
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
    with pytest.raises(Refusal, match=r"the scores overflow to infinity\. Train the model"):
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


def test_layers_that_share_weights_have_roles_and_maps_of_their_own(tmp_path):
    studio = Studio(bert_folder(tmp_path / "albert", "AlbertModel", num_hidden_layers=5))
    reading = heads.reading_of(studio, studio.texts.add("tom saw a big red dog"), Work())
    told = heads.summary(reading)
    assert (len(set(told["layers"])), told["heads"]) == (5, [3] * 5)
    assert [len(roles) for roles in told["roles"]] == told["heads"]
    # The same weights read what the run before wrote: no two maps or scores are the same.
    maps = [heads.whole_map(reading, layer, 0) for layer in range(5)]
    assert not any(one.allclose(other) for one, other in pairwise(maps))
    roles = gh.head_roles(reading.seen, reading.tokens)
    assert told["scores"]["previous"] == pytest.approx(roles.scores["previous"].numpy())


def test_a_text_is_cut_to_what_is_drawn(folder):
    studio = Studio(folder, Limits(heads=11))
    reading = heads.reading_of(studio, studio.texts.add(STORY), Work())
    assert reading.length == 11
    assert reading.of == len(Writer.load(folder).tokenizer.encode(STORY)) > 11


BERT_TEXT = "Once upon a time Tom saw a big red ball, and the dog ran unders."


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """As many layers and heads as all-MiniLM-L6-v2 has."""
    folder = tmp_path_factory.mktemp("models") / "bert"
    return bert_folder(
        folder, hidden_size=48, num_hidden_layers=6, num_attention_heads=12, intermediate_size=31
    )


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_twelve_heads_of_a_bert_fit_a_telephone(looking, serving, bert, language):
    served = serving(bert)
    name = served.studio.texts.add(BERT_TEXT)
    look = looking(served.url, width=390, height=844, language=language)
    page = look.open(f"#heads?text={name}&layer=5&head=11&query=4&key=9")
    assert look.overflow() == 0
    assert page.locator(".all button.small").count() == 6 * 12
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert look.overflow() == 0
    assert look.violations(contrast=language == "en") == []


@pytest.mark.slow
def test_numbers_of_a_bert_are_those_of_the_library(looking, serving, bert):
    from transformers import AutoTokenizer, BertModel

    served = serving(bert)
    page = looking(served.url).open(
        f"#heads?text={served.studio.texts.add(BERT_TEXT)}&layer=5&head=11&query=4&key=9"
    )
    batch = AutoTokenizer.from_pretrained(bert)(BERT_TEXT, return_tensors="pt")
    with torch.inference_mode():
        model = BertModel.from_pretrained(bert, attn_implementation="eager").eval()
        rows = model(**batch, output_attentions=True).attentions

    def read(row):
        return float(page.locator(f'[data-row="{row}"]').get_attribute("data-value"))

    own = rows[5][0, 11]
    assert own[4].argmax() != 4
    assert read("weight") == pytest.approx(own[4, 9].item(), rel=1e-4)
    assert read("received") == pytest.approx(own[:, 9].sum().item(), rel=1e-4)
    entropy = -(own[4] * own[4].log()).nansum().item()
    assert read("entropy") == pytest.approx(entropy, rel=1e-4)
    small = page.locator('button.small[data-layer="2"][data-head="7"]')
    other = rows[2][0, 7]
    mean = -(other * other.log()).nansum(-1).mean().item()
    assert float(small.get_attribute("data-entropy")) == pytest.approx(mean, rel=1e-4)
