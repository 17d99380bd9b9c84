"""A report: its numbers are the library's, its file is small, and it tells what it leaves out."""

import json
import re
from collections import Counter
from html import unescape

import pytest
import torch

import forked
import glasshead as gh
from glasshead.studio.background_jobs import Cancelled, Refusal, Work
from glasshead.studio.stored_answers import ReportContent, key_of
from glasshead.studio.studio import Limits
from glasshead.studio.views import heads_why
from glasshead.studio.views.reading import tokens_of
from glasshead.studio.views.steps import steps_data, steps_words
from glasshead.studio.views.steps_request import StepsRequest
from glasshead.tasks.readers.open_reader import open_any_reader
from glasshead.tasks.translate import TextTranslator, Translation, cross_attention
from glasshead.watching import UnseenError
from studio.report.conftest import HOSTILE, TEXT, TOKENS, held_in, keys_of
from written import written


@pytest.fixture(scope="module")
def seen(run):
    """The weights of each layer over the text, as `watch` has them."""
    reader = open_any_reader(run)
    tokens, _ = tokens_of(reader, TEXT, TOKENS)
    with torch.inference_mode(), gh.watch(reader.model, [], keep="weights") as seen:
        reader.read(torch.tensor([tokens]))
    return [seen[layer].weights.dense()[0] for layer in seen]


def plain(value):
    """As JSON has it."""
    return json.loads(json.dumps(value))


def test_every_map_of_the_heads_is_the_watched_one(held, seen):
    summary = held.told[f"heads/reading|text={held.told['about']['text']}"]
    assert (len(summary["tokens"]), summary["of"] > TOKENS, summary["heads"]) == (
        TOKENS,
        True,
        [3, 3],
    )
    asked = keys_of(held.numbers, "heads/weights")
    assert len(asked) == 6
    for each in asked:
        weights = held.tensor(key_of("heads/weights", each))
        expected = seen[int(each["layer"])][int(each["head"])]
        torch.testing.assert_close(weights, expected.float(), rtol=1e-5, atol=1e-7)


def test_the_most_telling_weights_of_each_head_have_their_reasons(held, run):
    reader = open_any_reader(run)
    tokens, _ = tokens_of(reader, TEXT, TOKENS)
    with torch.no_grad(), gh.watch(reader.model, keep="parts") as seen:
        reader.read(torch.tensor([tokens]))
    asked = keys_of(held.told, "heads/why")
    of_heads = Counter((int(each["layer"]), int(each["head"])) for each in asked)
    assert set(of_heads) == {(layer, head) for layer in range(2) for head in range(3)}
    assert len(asked) <= 64
    for each in asked[::7]:
        told = held.told[key_of("heads/why", each)]
        layer, head, query, key = (int(each[name]) for name in ("layer", "head", "query", "key"))
        name = list(seen)[layer]
        weights = seen[name].weights[0, head, query]
        assert int(weights.argmax()) == key
        scores = gh.score_parts(seen, name, head=head, query=query)
        assert told["contrast"] == pytest.approx(float(scores.contrast(key).sum()), abs=1e-4)
        assert told["key"]["parts"]


def test_scores_that_cannot_be_split_have_the_sentence_that_says_so(studio, monkeypatch):
    def unseen(*_):
        raise UnseenError("the parts are not known")

    monkeypatch.setattr(heads_why, "reasons", unseen)
    content = ReportContent(
        studio=studio, text="Ihr seht das.", name=studio.texts.add("Ihr seht das."), lang="es",
        work=Work(),
    )  # fmt: skip
    answers = [answer for _, _, answer in heads_why.stored_reasons(content, most=1)]
    # One of each head.
    assert len(answers) == 6
    assert all(list(answer) == ["refused"] for answer in answers)
    assert all("Elija otra capa" in answer["refused"] for answer in answers)


def test_every_tile_of_the_atlas_is_the_watched_one(held, seen):
    tiles = keys_of(held.numbers, "atlas/tile")
    assert {(each["layer"], each["head"]) for each in tiles} == {
        (str(layer), str(head)) for layer in range(2) for head in range(3)
    }
    for each in tiles:
        assert (each["level"], each["row"], each["column"]) == ("0", "0", "0")
        tile = held.tensor(key_of("atlas/tile", each))
        expected = seen[int(each["layer"])][int(each["head"])]
        torch.testing.assert_close(tile, expected.float(), rtol=1e-5, atol=1e-7)
    (tokens,) = (held.told[key] for key in held.told if key.startswith("atlas/tokens"))
    assert len(tokens["tokens"]) == TOKENS


def test_every_step_is_the_librarys(steps_held):
    sentence = re.split(r"(?<=[.!?])\s", TEXT)[0]
    asked = keys_of(steps_held.told, "steps")
    assert len(asked) > 10
    for each in asked:
        answer = steps_held.told[key_of("steps", each)]
        expected = steps_data(StepsRequest(text=sentence, **each), Limits())
        assert answer["matrices"] == expected["matrices"]
    told = steps_held.told["steps/words|lang=en"]
    assert told == plain(steps_words(StepsRequest(text=sentence), "en", Limits()))


def test_next_to_the_maps_of_a_model_there_are_no_generated_vectors(held):
    assert "steps" not in held.told["about"]["views"]
    assert not [key for key in held.told if key.startswith("steps")]


def test_every_alignment_is_the_translators(held, run):
    translator = TextTranslator.load(run)
    asked = keys_of(held.numbers, "alignment/weights")
    assert {each["sentence"] for each in asked} == set(held.told["alignment/stored"]["sentences"])
    for each in asked[::3]:
        tokens = tuple(int(token) for token in each["tokens"].split(",") if token)
        source = tuple(translator.tokenizer.encode(each["sentence"]))
        expected = cross_attention(translator, Translation(each["sentence"], "", source, tokens))
        torch.testing.assert_close(
            held.tensor(key_of("alignment/weights", each)), expected.weights.float()
        )


def test_the_page_tells_what_it_is_of_and_not_where_it_lay(report, run, held):
    about = held.told["about"]
    assert about["subject"] == {
        "name": "a <b>&run",
        "path": None,
        "kind": "translate",
        "problem": None,
    }
    assert about["views"] == dict.fromkeys(("heads", "alignment", "atlas"))
    assert about["languages"] == {"en": "English"}
    assert [key for key in held.told if key.startswith("words")] == ["words|lang=en"]
    html = report.html()
    assert run.parent.name not in html + str(held.told)
    assert "<title>a &lt;b&gt;&amp;run · glasshead</title>" in html
    assert "<img src=x" not in html
    assert repr(report) == f"Report of {TEXT[:40] + '…'!r} in en"


def test_what_is_left_out_is_told(held, steps_held):
    notes = held.told["about"]["notes"]
    beginning = r"This is the beginning of the text \(words and marks: \d+\)\. .*"
    assert re.fullmatch(beginning, steps_held.told["about"]["notes"]["steps"][0])
    assert notes["alignment"] == [
        "This is the beginning of the text (sentences: 2). The studio accepts any sentence."
    ]
    assert (notes["heads"], notes["atlas"]) == ([], [])


def test_256_tokens_of_a_small_model_take_less_than_5_megabytes(tmp_path):
    small = ("d_model=32", "num_heads=8", "num_layers=5", "context_length=256")
    folder = written(tmp_path / "run", *small).path
    report = gh.Report(folder, "Once upon a time there was a girl. " * 97)
    html = report.html()
    held = held_in(html)
    summary = held.told[f"heads/reading|text={held.told['about']['text']}"]
    assert len(summary["tokens"]) == 256 < summary["of"]
    assert 1_000_000 < len(html) < 5_000_000
    about = held.told["about"]
    whole = len(keys_of(held.numbers, "heads/weights"))
    maps = len(keys_of(held.told, "atlas/map"))
    for view, kept in (("heads", whole), ("atlas", maps)):
        assert kept > 1
        assert f"it contains the full maps of {kept} of the 40 heads" in about["notes"][view][0]
    assert about["views"]["alignment"] == "alignment.none"
    # The same numbers are there once.
    assert all("as" in held.numbers[key] for key in held.numbers if key.startswith("atlas/tile"))


def test_without_a_model_there_are_the_steps_alone():
    held = held_in(gh.Report(None, "Hello shiny sun!", lang="tr").html())
    views = held.told["about"]["views"]
    assert [view for view, why in views.items() if why is None] == ["steps"]
    assert held.told["about"]["notes"] == {"steps": []}
    assert held.told["about"]["languages"] == {"tr": "Türkçe"}
    assert held.told["about"]["subject"]["name"] is None
    words = steps_words(StepsRequest(text="Hello shiny sun!"), "tr", Limits())
    assert held.told["steps/words|lang=tr"] == plain(words)
    assert held.numbers == {}


def test_without_a_text_it_is_of_one_that_the_run_has_held_out(studio):
    report = gh.Report(studio)
    assert report.sample.origin == "held_out"
    assert report.sample == studio.subject.sample()
    held = held_in(report.html())
    assert held.told["sample"] == {"text": report.sample.text, "origin": "held_out", "why": ""}
    name = held.told["about"]["text"]
    assert held.told[f"texts/{name}"] == {"text": report.sample.text}
    assert held.told["about"]["first"] == "heads"
    with pytest.raises(Refusal, match=r"^a report without a model needs a text, got none\."):
        gh.Report(None)


def test_a_text_that_is_given_needs_no_word_on_where_it_is_from(held):
    assert held.told["sample"] == {"text": TEXT, "origin": "given", "why": ""}
    assert held.told["about"]["first"] == "heads"


def test_a_view_that_is_refused_says_why():
    report = gh.Report(None, HOSTILE.split()[0] + "\ud800 word")
    why = held_in(report.html()).told["about"]["views"]["steps"]
    assert why == "a sentence must have whole characters, got halves of some. Retype it."


def test_a_studio_lends_its_model(studio, report):
    assert "reader" in studio.subject._open
    assert studio.limits == Limits()
    assert report.html().startswith("<!doctype html>")


def test_errors(run, tmp_path):
    with pytest.raises(Refusal, match="Enter at least one word, or choose a text."):
        gh.Report(run, " \n")
    with pytest.raises(ValueError, match="lang must be one of en, tr, es, zh-Hant, zh-Hans"):
        gh.Report(run, "text", lang="de")
    with pytest.raises(Refusal, match=r"none is not a folder\. Name one of a run"):
        gh.Report(tmp_path / "none", "text")
    x = torch.eye(3)
    gh.Attention().weights(x, x).save(tmp_path / "kept.safetensors")
    with pytest.raises(Refusal, match=r"kept\.safetensors has only weights\. Open it with"):
        gh.Report(tmp_path / "kept.safetensors", "text")
    work = Work()
    work.cancel()
    with pytest.raises(Cancelled):
        gh.Report(run, "text", work=work)


def test_a_file_is_written_whole_or_not_at_all(report, tmp_path, monkeypatch):
    file = tmp_path / "report.html"
    report.save(str(file))
    assert file.read_text(encoding="utf-8") == report.html()

    def fail(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    file.write_text("old")
    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="No space left"):
        report.save(file)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_notebook_gets_a_frame_that_cannot_touch_it(report):
    frame = report._repr_html_()
    whole = re.fullmatch(r'<iframe srcdoc="([^"]*)"([^>]*)></iframe>', frame, re.DOTALL)
    assert whole is not None
    assert unescape(whole[1]) == report.html()
    assert 'sandbox="allow-scripts allow-downloads"' in whole[2]
    assert 'title="a &lt;b&gt;&amp;run · glasshead"' in whole[2]
    assert 'width="100%"' in whole[2]


@pytest.mark.slow
def test_a_report_needs_no_server():
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('fastapi', 'starlette', 'uvicorn')))\n"
        "import glasshead as gh\n"
        "print(len(gh.Report(None, '\\ud800').html()) > 10_000)"
    )
    done = forked.Process("-c", code, fresh=True).ended()
    assert done.stdout == "True\n", done.stderr
