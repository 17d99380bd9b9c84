"""Reading: of a text by a model, layer by layer, for no longer than somebody waits.

Readings: each once for all who ask, within the memory, and those used last are kept.
Subject: what a folder is taken for, and when it is loaded again.
"""

import contextlib
import os
import threading

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.studio.background_jobs import (
    Busy,
    Cancelled,
    Forgotten,
    NotThere,
    Refusal,
    SizedCache,
    TooMuch,
    Work,
)
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.subject import StudioSubject
from glasshead.studio.views import reading as module
from glasshead.studio.views.reading import is_read, read, run, tokens_of
from glasshead.tasks.readers.open_reader import open_any_reader, open_reader
from glasshead.tasks.readers.reader import Reader
from pretrained_folders import TOKENS, llama2c_files, packed
from studio.asking import Asked, soon
from translated import translated
from written import written

LENGTH, LAYERS, HEADS = 13, 2, 3


WIDTH = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "run").path


@pytest.fixture
def studio(folder):
    return Studio(folder)


def reader_of(model, read, **named):
    """A reader whose tokens are the numbers of letters."""
    return Reader(
        name="a model",
        kind="model",
        model=model,
        read=read,
        encode=lambda texts: [[ord(letter) - 97 for letter in text] for text in texts],
        token=lambda token: chr(token + 97),
        ordinary=range(26),
        ending=(),
        unknown=None,
        **{"context": None, **named},
    )


def letters(model, **named):
    return reader_of(model, model, **named)


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = gh.LanguageModelConfig(
        vocab_size=26, d_model=WIDTH, num_heads=HEADS, num_layers=LAYERS
    )
    return gh.LanguageModel(config).eval()


def test_a_text_is_read_once_and_told_layer_by_layer(studio, monkeypatch):
    runs = []
    monkeypatch.setattr(module, "run", lambda *a, **k: runs.append(k) or run(*a, **k))
    text = studio.texts.add("a dog and a cat")
    assert not is_read(studio, text, 1024)
    work = Asked(None)
    reading = read(studio, text, work, 1024)
    assert work.told[-LAYERS:] == [("heads.reading", layer, LAYERS) for layer in range(LAYERS)]
    assert {stage for stage, _, _ in work.told} == {
        "heads.opening",
        "heads.encoding",
        "heads.reading",
    }
    assert is_read(studio, text, 1024)
    assert read(studio, text, Work(), 1024) is reading
    # Once on a few tokens, once on all.
    assert len(runs) == 2
    assert read(studio, text, Work(), 7) is not reading
    assert read(studio, text, Work(), 1024, (gh.Entropy(),)) is not reading


def test_its_size_is_that_of_queries_keys_and_logsumexps(studio):
    reading = read(studio, studio.texts.add("a dog"), Work(), 1024)
    a_token = LAYERS * (2 * WIDTH + HEADS) * 4
    assert reading.size == a_token * reading.length


def test_a_long_text_is_cut_to_the_context_and_keeps_what_stands_around(model):
    reader = letters(model, context=7, around=((25,), (24, 23)))
    assert tokens_of(reader, "abcdefgh", 100) == ([25, 0, 1, 2, 3, 24, 23], 11)
    assert tokens_of(reader, "abcdefgh", 5) == ([25, 0, 1, 24, 23], 11)
    assert tokens_of(reader, "ab", 100) == ([25, 0, 1, 24, 23], 5)
    ends = letters(model, context=5, shorten=lambda tokens: [*tokens[:2], *tokens[-3:]])
    assert tokens_of(ends, "abcdefgh", 100) == ([0, 1, 5, 6, 7], 8)
    assert tokens_of(ends, "abcde", 100) == ([0, 1, 2, 3, 4], 5)


def test_a_text_without_a_token_is_refused(model):
    with pytest.raises(
        Refusal, match=r"finds no token in this text that it reads\. Choose another"
    ):
        tokens_of(letters(model), "", 100)
    with pytest.raises(
        Refusal, match=r"finds no token in this text that it reads\. Choose another"
    ):
        tokens_of(letters(model, context=3, around=((25,), (24, 23))), "abc", 100)


def test_half_a_character_is_read_as_an_unknown_one(studio):
    reading = read(studio, studio.texts.add("a \ud800 dog"), Work(), 1024)
    assert reading.length > 3


def test_a_text_that_is_forgotten_has_to_be_sent_again(studio):
    with pytest.raises(Forgotten, match=r"this text is no longer here\. Open it again"):
        read(studio, "0" * 16, Work(), 1024)


def test_who_does_not_wait_ends_the_reading_at_the_next_layer(model):
    reader, tokens = letters(model), torch.arange(LENGTH)
    expected = model(tokens[None])
    few = run(reader, tokens[:3], (), budget=2**20)
    work, ran = Asked(1), []
    hook = model.norm.register_forward_hook(lambda *_: ran.append(1))
    with pytest.raises(Cancelled):
        run(reader, tokens, (), budget=2**20, like=few, work=work)
    hook.remove()
    assert work.told == [("heads.reading", 0, LAYERS), ("heads.reading", 1, LAYERS)]
    assert not ran
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert model(tokens[None]).equal(expected)
    assert len(run(reader, tokens, (), budget=2**20, like=few, work=Work())) == LAYERS


def test_a_text_that_others_read_meanwhile_tells_nothing(model):
    reader, tokens = letters(model), torch.arange(LENGTH)
    few = run(reader, tokens[:3], (), budget=2**20)
    work, others = Asked(None), []

    def told(*_):
        # In the middle of the reading another thread reads with the same model.
        if not others:
            others.append(threading.Thread(target=lambda: model(tokens[None])))
            others[0].start()
            others[0].join()

    with model.blocks[1].register_forward_pre_hook(told):
        run(reader, tokens, (), budget=2**20, like=few, work=work)
    assert work.told == [("heads.reading", layer, LAYERS) for layer in range(LAYERS)]


def test_fused_layers_of_pytorch_stay_as_they_are():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, batch_first=True)
    encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
    embedding = nn.Embedding(26, WIDTH)
    reader = reader_of(encoder, lambda tokens: encoder(embedding(tokens)))
    tokens = torch.arange(LENGTH)
    few = run(reader, tokens[:3], (), budget=2**20)
    work = Asked(None)
    seen = run(reader, tokens, (), budget=2**20, like=few, work=work)
    assert list(seen) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert work.told == []


def test_an_attention_that_runs_again_is_a_layer_of_its_own():
    attention = gh.MultiHeadAttention(WIDTH, HEADS).eval()
    embedding = nn.Embedding(26, WIDTH)

    def read(tokens):
        x = embedding(tokens)
        return attention(x + attention(x))

    seen = run(reader_of(attention, read), torch.arange(LENGTH), (), budget=2**20)
    assert list(seen) == ["#0", "#1"]
    first, second = (one.weights.dense() for one in seen.values())
    assert first.shape == (1, HEADS, LENGTH, LENGTH)
    assert not first.allclose(second)
    with torch.inference_mode(), gh.watch(attention, keep="weights") as all_calls:
        read(torch.arange(LENGTH)[None])
    torch.testing.assert_close(second, all_calls[""].weights.dense())


def test_what_cannot_be_seen_is_refused_in_the_words_of_watch():
    model = nn.Linear(3, 3)
    reader = reader_of(model, lambda tokens: model(torch.zeros(1, 3)))
    with pytest.raises(Refusal, match=r"watch saw no attention of Linear"):
        run(reader, torch.arange(LENGTH), (), budget=2**20)


def test_more_memory_than_allowed_is_refused(folder, model):
    studio = Studio(folder, Limits(memory=1000))
    text = studio.texts.add("a dog and a cat")
    with pytest.raises(TooMuch, match=r"needs 2,808\. Choose a"):
        read(studio, text, Work(), 1024)
    with pytest.raises(TooMuch, match=r"would take more memory than is allowed\. Choose a shorter"):
        run(letters(model), torch.arange(LENGTH), (), budget=1000)
    readings = SizedCache(1000)
    with (
        readings.reserved(600),
        pytest.raises(Busy, match=r"another text is being read, which takes the memory"),
        readings.reserved(401),
    ):
        pass
    with readings.reserved(1000):
        pass


def test_a_model_that_was_written_anew_is_opened_and_read_again(tmp_path):
    run_folder = written(tmp_path / "run")
    studio = Studio(run_folder.path)
    text = studio.texts.add("a dog")
    version, reader = studio.subject.version, studio.subject.reader()
    reading = read(studio, text, Work(), 1024)
    (run_folder.path / "log.csv").write_text("step,loss\n")
    assert studio.subject.version == version
    assert studio.subject.reader() is reader
    for file in (run_folder.weights, run_folder.config, run_folder.tokenizer):
        state = file.stat()
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
        assert studio.subject.version != version
        assert studio.subject.reader() is not reader
        assert read(studio, text, Work(), 1024) is not reading
        version, reader = studio.subject.version, studio.subject.reader()
        reading = read(studio, text, Work(), 1024)


def test_any_reader_opens_what_a_reader_of_texts_does_not(tmp_path):
    folder = translated(tmp_path / "run").path
    assert open_any_reader(folder).context is not None
    with pytest.raises(ValueError, match="translate"):
        open_reader(folder)


class Sized:
    def __init__(self, size):
        self.size = size


def test_the_reading_that_was_used_longest_ago_is_forgotten_first():
    readings = SizedCache(10)
    for key in "abc":
        readings.get(key, lambda: Sized(3))
    kept = readings.get("a", lambda: pytest.fail("it is there"))
    assert kept.size == 3
    with readings.reserved(4):
        assert ["a" in readings, "b" in readings, "c" in readings] == [True, False, True]
        readings.get("d", lambda: Sized(4))
    assert "d" in readings
    assert "c" not in readings


@contextlib.contextmanager
def being_read(readings, *told):
    """Meanwhile somebody reads "a", who has told so much of it; what he has read, in the end."""
    work, begun, go, results = Work(), threading.Event(), threading.Event(), []

    def slow():
        for each in told:
            work.report(*each)
        begun.set()
        assert go.wait(60)
        return Sized(1)

    reading = threading.Thread(target=lambda: results.append(readings.get("a", slow, work=work)))
    reading.start()
    try:
        assert begun.wait(60)
        yield results
    finally:
        go.set()
        reading.join(60)


def leave(readings):
    """Ask for "a" as somebody who does not wait any more."""
    gone = Work()
    gone.cancel()
    with pytest.raises(Cancelled):
        readings.get("a", lambda: pytest.fail("it is read once"), gone.follow, gone)


def test_who_asks_for_what_is_being_read_waits_for_it_and_is_told():
    readings, second, found = SizedCache(10), Asked(None), []

    def wait():
        once = lambda: pytest.fail("it is read once")  # noqa: E731 - it is not called
        found.append(readings.get("a", once, second.follow, second))

    waiting = threading.Thread(target=wait)
    with being_read(readings, ("heads.reading", 1, 3)) as results:
        waiting.start()
        assert soon(lambda: bool(second.told))
        leave(readings)
        assert not found
    waiting.join(60)
    assert set(second.told) == {("heads.reading", 1, 3)}
    assert found == results
    assert len(found) == 1


def test_who_waits_for_what_tells_nothing_may_leave():
    readings = SizedCache(10)
    with being_read(readings):
        leave(readings)


def test_who_waits_reads_himself_where_the_first_has_left():
    readings = SizedCache(10)
    with pytest.raises(Cancelled):
        readings.get("a", _leave)
    assert readings.get("a", lambda: Sized(2)).size == 2


def _leave():
    raise Cancelled


def test_a_folder_of_llama2c_is_a_model_that_reads(tmp_path):
    subject = StudioSubject(llama2c_files(tmp_path / "model").parent)
    assert subject.kind == "model"
    reader = subject.reader()
    assert reader.context == 31
    assert [reader.token(token) for token in reader.encode(["abc aab"])[0]] == [
        " ",
        "abc",
        " a",
        "ab",
    ]


def test_each_folder_is_what_its_config_says(tmp_path):
    assert StudioSubject().kind is None
    assert StudioSubject(written(tmp_path / "writer").path).kind == "write"
    assert StudioSubject(translated(tmp_path / "translator").path).kind == "translate"
    x = torch.eye(3)
    gh.Attention().weights(x, x).save(tmp_path / "kept.safetensors")
    assert StudioSubject(tmp_path / "kept.safetensors").kind == "weights"


def test_a_folder_with_nothing_in_it_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no run: there is no config.json in it"):
        _ = StudioSubject(tmp_path).kind
    with pytest.raises(NotThere, match=r"is not a folder\. Name one of a run"):
        _ = StudioSubject(tmp_path / "nowhere").kind


def test_a_model_is_loaded_anew_where_its_weights_were_written_anew(tmp_path):
    folder = written(tmp_path / "run")
    subject = StudioSubject(folder.path)
    first = subject.reader()
    assert subject.reader() is first
    os.utime(folder.weights, ns=(1, 1))
    assert subject.reader() is not first


def test_a_file_that_is_gone_and_a_run_that_does_not_translate_are_told(tmp_path):
    with pytest.raises(NotThere, match=r"kept.safetensors is not there\. Check its name"):
        _ = StudioSubject(tmp_path / "kept.safetensors").kind
    run = written(tmp_path / "writer").path
    for folder, holds in ((None, "no model"), (run, f"a language model in {run}")):
        with pytest.raises(NotThere) as refused:
            StudioSubject(folder).translator()
        assert str(refused.value) == (
            f"an alignment needs a translation model, got {holds}. Start the studio with the "
            f"folder of one."
        )


def test_what_needs_a_model_is_refused_where_there_is_none():
    with pytest.raises(NotThere, match="^a text needs a model that reads it, got no model"):
        StudioSubject().reader()


def test_a_file_of_llama2c_is_read_as_its_folder_is(data_folder):
    file = data_folder / "stories260K" / "stories260K.bin"
    passes = []
    for place in (file, file.parent):
        studio = Studio(place)
        assert studio.subject.kind == "model"
        text = studio.texts.add("Once upon a time there was a dog.")
        passes.append(read(studio, text, Work(), 1024))
    first, second = passes
    assert first.words == second.words
    assert first.words[:2] == (" Once", " upon")
    assert first.heads == (8,) * 5
    assert torch.equal(first.weights(4)[0, 7], second.weights(4)[0, 7])


def test_another_tokenizer_beside_the_file_of_llama2c_is_read_again(tmp_path):
    file = llama2c_files(tmp_path)
    subject = StudioSubject(file)
    reader = subject.reader()
    assert subject.reader() is reader
    (tmp_path / "tok.bin").write_bytes(packed([*TOKENS[:-1], ("later", -99.0)]))
    assert subject.reader().token(len(TOKENS) - 1).strip() == "later"
