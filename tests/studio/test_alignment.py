"""What the view `alignment` shows: a beam's translations, and what each word of them looked at."""

from dataclasses import replace

import pytest
import torch
from starlette.testclient import TestClient

from glasshead.models.decoding import Beam
from glasshead.studio.app import application
from glasshead.studio.background_jobs import Cancelled, Refusal, TooMuch, Work
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.views.alignment import sentences_of, stored_alignment, translations, weights
from glasshead.tasks.data.sentences import pairs
from glasshead.tasks.translate import TextTranslator, align
from translated import translated
from written import written

LIMITS = Limits()
GERMAN = pairs(1, seed=5)[0].german
WIDTH = 3


@pytest.fixture(scope="module")
def translator(word_translator):
    return TextTranslator.load(word_translator)


@pytest.fixture(scope="module")
def told(translator):
    return translations(translator, GERMAN, LIMITS, WIDTH)


@pytest.fixture(scope="module")
def client(word_translator):
    return TestClient(application(Studio(word_translator)), base_url="http://127.0.0.1")


def test_translations_are_those_of_the_beam(translator, told):
    found = translator.candidates([GERMAN], Beam(WIDTH, candidates=WIDTH))[0]
    assert told["length_penalty"] == 1.0
    assert (told["layers"], told["heads"]) == (2, 3)
    assert [
        (each["text"], each["tokens"], each["score"], each["log_probability"], each["ended"])
        for each in told["candidates"]
    ] == [
        (
            each.translation.text,
            [*each.translation.tokens],
            each.score,
            each.log_probability,
            each.ended,
        )
        for each in found
    ]
    assert len(found) == WIDTH
    best = told["candidates"][0]["text"].split(" ")
    for each in told["candidates"]:
        words = each["text"].split(" ")
        shared = [word for at, word in enumerate(words) if at not in each["own"]]
        left = iter(best)
        assert all(word in left for word in shared)
    assert told["candidates"][0]["own"] == []
    assert any(each["own"] for each in told["candidates"])


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("head", [None, 0, 2])
def test_weights_are_those_of_align(translator, told, layer, head):
    found = translator.candidates([GERMAN], Beam(WIDTH, candidates=WIDTH))[0]
    for each, candidate in zip(found, told["candidates"], strict=True):
        expected = align(translator, each.translation, layer, head)
        assert (*told["source"],) == expected.source
        assert (*candidate["target"],) == expected.target
        own = weights(translator, GERMAN, candidate["tokens"], LIMITS)[layer]
        own = own.mean(0) if head is None else own[head]
        assert torch.equal(own, expected.weights)


def test_what_cannot_be_seen_is_written_out(tmp_path):
    of_bytes = TextTranslator.load(translated(tmp_path / "run", "vocabulary=260").path)
    told = translations(of_bytes, "<img src=x onerror=y>\0\u202eabc", LIMITS, 1)
    assert told["source"][0] == "<"
    assert told["source"][-3:] == ["\\x00", "\\u202e", "abc"]
    assert not any(character in str(told) for character in "\0\u202e")


def test_nobody_waits(translator):
    work, steps = Work(), []
    work.cancel()
    hook = translator.model.decoder.register_forward_hook(lambda *_: steps.append(1))
    with pytest.raises(Cancelled):
        translations(translator, GERMAN, LIMITS, WIDTH, work)
    hook.remove()
    assert steps == []


LONG = "ja " * (LIMITS.words + 1)


@pytest.mark.parametrize(
    ("sentence", "kind", "said"),
    [
        ("", Refusal, "Enter at least one word"),
        (" \n\t", Refusal, "at least one word"),
        (LONG, TooMuch, "A sentence must have at most 24 words, got 25"),
        ("a" * 501, TooMuch, "A sentence must have at most 500 characters, got 501"),
    ],
)
def test_sentences_that_are_refused(translator, sentence, kind, said):
    with pytest.raises(kind, match=said):
        translations(translator, sentence, LIMITS)
    with pytest.raises(kind, match=said):
        weights(translator, sentence, [3], LIMITS)


def test_a_sentence_that_the_model_cannot_read(translator):
    room, sentence = translator.model.config.context_length, "ja " * 67
    wide = replace(LIMITS, words=99)
    said = rf"must have at most the {room} tokens that the model reads, got 67\. Cut it into"
    with pytest.raises(ValueError, match=said):
        translations(translator, sentence, wide)
    with pytest.raises(TooMuch, match=said):
        weights(translator, sentence, [3], wide)


@pytest.mark.parametrize(
    ("tokens", "kind", "said"),
    [
        ([3, 99_999], Refusal, r"tokens must be in 0\.\.\d+, got 99999\. Use the tokens"),
        ([3] * 65, TooMuch, "a translation must have at most 64 tokens, got 65. Use one of"),
    ],
)
def test_tokens_that_are_none(translator, tokens, kind, said):
    with pytest.raises(kind, match=said):
        weights(translator, GERMAN, tokens, LIMITS)


def test_the_server_answers_with_the_same(client, translator, told):
    asked = {"sentence": GERMAN, "beam": WIDTH}
    assert client.get("/api/alignment", params=asked).json() == told
    for candidate in told["candidates"]:
        tokens = ",".join(map(str, candidate["tokens"]))
        answer = client.get("/api/alignment/weights", params={"sentence": GERMAN, "tokens": tokens})
        expected = weights(translator, GERMAN, candidate["tokens"], LIMITS)
        assert answer.headers["Shape"] == ",".join(map(str, expected.shape))
        found = torch.frombuffer(bytearray(answer.content), dtype=torch.float32)
        assert torch.equal(found, expected.flatten())


def test_the_layers_of_the_encoder_and_the_decoder_are_counted(client, translator):
    told = client.get("/api/prompt/model").json()
    model = translator.model
    assert (told["layers"], told["decoder"]) == (len(model.encoder), len(model.decoder))


def test_a_translation_without_a_word_has_no_weights(client, told):
    answer = client.get("/api/alignment/weights", params={"sentence": GERMAN, "tokens": ""})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["Shape"] == f"2,3,0,{len(told['source'])}"


@pytest.mark.parametrize(
    ("path", "given", "status"),
    [
        ("", {"sentence": " "}, 400),
        ("", {"sentence": LONG}, 413),
        ("", {"sentence": "a" * 2**15}, 422),
        ("", {}, 422),
        ("", {"sentence": "ja", "beam": 0}, 422),
        ("", {"sentence": "ja", "beam": 11}, 422),
        ("/weights", {"sentence": "ja", "tokens": "3,x"}, 422),
        ("/weights", {"sentence": "ja", "tokens": "3,99999"}, 400),
        ("/weights", {"sentence": "", "tokens": "3"}, 400),
    ],
)
def test_what_the_server_refuses(client, path, given, status):
    answer = client.get(f"/api/alignment{path}", params=given)
    assert answer.status_code == status
    assert answer.json()["detail"].endswith(".")


def test_another_model_has_no_alignment(tmp_path):
    folder = written(tmp_path / "run").path
    client = TestClient(application(Studio(folder)), base_url="http://127.0.0.1")
    assert client.get("/api/about").json()["views"]["alignment"] == "alignment.none"
    answer = client.get("/api/alignment", params={"sentence": "ja"})
    assert answer.status_code == 404
    assert answer.json()["detail"] == (
        f"an alignment needs a translation model, got a language model in {folder}. Start the "
        f"studio with the folder of one."
    )


def test_a_report_holds_the_first_sentences_that_can_be_translated(translator):
    text = f"{LONG}.\n{GERMAN} Ja! Nein."
    answers = list(stored_alignment(translator, text, LIMITS, sentences=2, width=WIDTH))
    path, given, held = answers.pop()
    assert (path, given) == ("alignment/stored", {})
    assert held == {"sentences": [GERMAN, "Ja!"], "beam": WIDTH}
    for sentence in held["sentences"]:
        told = translations(translator, sentence, LIMITS, WIDTH)
        assert answers.pop(0) == ("alignment", {"sentence": sentence, "beam": WIDTH}, told)
        for candidate in told["candidates"]:
            path, given, found = answers.pop(0)
            tokens = ",".join(map(str, candidate["tokens"]))
            assert (path, given) == ("alignment/weights", {"sentence": sentence, "tokens": tokens})
            assert torch.equal(found, weights(translator, sentence, candidate["tokens"], LIMITS))
    assert answers == []


def test_a_report_of_no_sentence_is_refused(translator):
    with pytest.raises(Refusal, match="a sentence of at most 24 words that the model can read"):
        list(stored_alignment(translator, LONG, LIMITS))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [("你好。再见！", ["你好。", "再见！"]), ("z.B. so", ["z.B.", "so"]), (" \n", [])],
)
def test_sentences_end_with_their_marks(text, sentences):
    assert sentences_of(text) == sentences
