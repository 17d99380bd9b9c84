"""Runs: what a folder holds, written with and evaluated.

Stop strings: whatever the pieces a text comes in, no part of one is shown.
"""

import json
import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn import functional as F

from glasshead.models.decoding import Beam, Greedy, Sampling
from glasshead.models.language_model import LanguageModelSteps
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.tokenizers.train_tokenizer import characters, train_bpe
from glasshead.tasks.write import WRITE, StoppedText, Writer, WriteSettings, checked_stop, evaluate
from written import written


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def writer(run):
    return Writer.load(run.path)


def text_of(writer, prompt, strategy, tokens):
    return "".join(writer.write(prompt, strategy, max_tokens=tokens))


def test_greedy_text_is_what_the_whole_model_tells_token_by_token(writer):
    # 7 + 6 tokens: within the context of 13.
    told = text_of(writer, "One day", Greedy(), 6)
    tokens = writer.tokenizer.encode("One day")
    never = [writer.tokenizer.pad_id, writer.tokenizer.start_id, writer.tokenizer.unknown_id]
    expected = []
    for _ in range(6):
        logits = writer.model(torch.tensor([tokens + expected]))[0, -1]
        logits[never] = -torch.inf
        expected.append(int(logits.argmax()))
        if expected[-1] == writer.tokenizer.end_id:
            break
    assert told == writer.tokenizer.decode(expected)


def test_a_text_longer_than_the_context_goes_on_from_half_a_context_back(writer):
    model, context = writer.model, writer.model.config.context_length
    steps = LanguageModelSteps(model)
    text = torch.randint(4, model.config.vocab_size, (2, 3 * context))
    seen = 5
    logits = steps.next(text[:, :seen])
    for place in range(5, text.shape[1]):
        seen = seen + 1 if seen < context else context // 2
        logits = steps.next(text[:, place : place + 1])
        whole = model(text[:, place + 1 - seen : place + 1])[:, -1]
        torch.testing.assert_close(logits, whole, atol=1e-5, rtol=1e-5)


def test_prompts_of_unequal_lengths_give_what_each_gives_alone(writer):
    model = writer.model
    prompts = [[5, 6, 7, 8, 9, 10, 11], [12, 13], [14, 15, 16]]
    padding = torch.tensor([7 - len(prompt) for prompt in prompts])
    padded = torch.tensor([[0] * (7 - len(prompt)) + prompt for prompt in prompts])
    steps, alone = LanguageModelSteps(model, padding), [LanguageModelSteps(model) for _ in prompts]
    together = steps.next(padded)
    apart = [one.next(torch.tensor([prompt])) for one, prompt in zip(alone, prompts, strict=True)]
    # Within the context of 13: pages turn where the longest row is full.
    for token in range(6):
        torch.testing.assert_close(together, torch.cat(apart), atol=1e-5, rtol=1e-5)
        next_tokens = torch.tensor([[token + 4], [token + 5], [token + 6]])
        together = steps.next(next_tokens)
        apart = [one.next(row[None]) for one, row in zip(alone, next_tokens, strict=True)]


def test_sampling_with_a_seed_is_the_same_text_again(writer):
    one = text_of(writer, "One", Sampling(seed=3), 40)
    assert one == text_of(writer, "One", Sampling(seed=3), 40)
    assert one != text_of(writer, "One", Sampling(seed=4), 40)


def test_a_beam_of_one_is_greedy(writer):
    assert text_of(writer, "Two", Beam(1), 9) == text_of(writer, "Two", Greedy(), 9)


def after(writer, token):
    """What greedy writing goes on with after one token."""
    tokenizer, written = writer.tokenizer, []
    never = [tokenizer.pad_id, tokenizer.start_id, tokenizer.unknown_id]
    for _ in range(5):
        logits = writer.model(torch.tensor([[token, *written]]))[0, -1]
        logits[never] = -torch.inf
        if logits.argmax() == tokenizer.end_id:
            break
        written.append(int(logits.argmax()))
    return tokenizer.decode(written)


def test_without_a_prompt_a_text_begins_after_the_end_of_another(writer):
    told = text_of(writer, "", Greedy(), 5)
    assert told == after(writer, writer.tokenizer.end_id)
    assert told != after(writer, writer.tokenizer.encode("\n" if "\n" in told else " ")[0])


def test_without_a_prompt_a_single_text_goes_on_after_the_end_of_a_line(tmp_path):
    (tmp_path / "text.txt").write_text("one two\nthree\n" * 50)
    single = Writer.load(written(tmp_path / "run", files=(str(tmp_path / "text.txt"),)).path)
    told = text_of(single, "", Greedy(), 5)
    assert told == after(single, single.tokenizer.encode("\n")[0])


def test_pieces_of_words_are_joined_to_the_prompt(tmp_path):
    run = written(tmp_path / "run", "tokenizer=wordpiece", "vocabulary=90")
    pieces = Writer.load(run.path)
    prompt = "One day Em"
    for seed in range(5):
        told = text_of(pieces, prompt, Sampling(seed=seed), 9)
        assert "#" not in told
        drawn = text_of(pieces, prompt, Sampling(seed=seed), 1)
        assert told.startswith(drawn)
    with pytest.raises(ValueError, match="the prompt has 'ß'"):
        text_of(pieces, "Straße", Greedy(), 5)


def test_a_letter_that_no_text_had_is_refused(writer):
    with pytest.raises(ValueError, match="the prompt has 'ß', which the texts of this run never"):
        text_of(writer, "Straße", Greedy(), 5)


def test_evaluation_is_the_mean_over_the_windows_of_the_text(writer, tmp_path):
    text = "One sunny day Emma took her red ball to the park."
    (tmp_path / "text.txt").write_text(text)
    figures = evaluate(writer, [str(tmp_path / "text.txt")])
    tokens = torch.tensor(writer.tokenizer.encode(text))
    losses = []
    for start in range(0, len(tokens) - 1, 13):
        window = tokens[start : start + 14]
        logits = writer.model(window[None, :-1])[0]
        losses += F.cross_entropy(logits, window[1:], reduction="none").tolist()
    loss = sum(losses) / len(losses)
    assert len(losses) == len(text) - 1
    assert figures["loss"] == pytest.approx(loss, rel=1e-5)
    assert figures["perplexity"] == pytest.approx(math.exp(loss), rel=1e-5)
    assert figures["bits_per_character"] == pytest.approx(loss / math.log(2), rel=1e-5)


def test_without_files_the_held_out_part_is_evaluated(writer):
    figures = evaluate(writer)
    assert figures["characters"] > 1000


def test_bits_per_character_do_not_depend_on_the_tokens(tmp_path):
    """Two bytes of a token count as the characters that they are."""
    bpe = Writer.load(written(tmp_path / "run", "tokenizer=bpe", "vocabulary=300").path)
    text = "One sunny day Emma took her ball."
    (tmp_path / "text.txt").write_text(text)
    figures = evaluate(bpe, [str(tmp_path / "text.txt")])
    first = len(bpe.tokenizer.decode(bpe.tokenizer.encode(text)[:1]))
    assert figures["characters"] == len(text) - first
    nats = figures["loss"] * figures["tokens"]
    assert figures["bits_per_character"] == pytest.approx(
        nats / math.log(2) / (len(text) - first), rel=1e-6
    )


def test_a_text_is_cut_at_its_last_tenth(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("ab" * 500)
    prepared = WRITE.begin(
        WriteSettings.from_preset("nano", ["context_length=7"], [str(file)]),
        RunFolder(tmp_path / "run"),
        "",
    )
    assert (len(prepared.source.tokens), len(prepared.held_out.tokens)) == (900, 100)


def test_a_run_goes_on_with_the_same_texts_alone(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("ab" * 500)
    folder = written(tmp_path / "run", files=(str(file),))
    assert torch.equal(WRITE.go_on(folder).source.tokens[:3], WRITE.go_on(folder).source.tokens[:3])
    file.write_text("ba" * 500)
    with pytest.raises(
        ValueError, match="the texts must be those that the run in .* began with, got others"
    ):
        WRITE.go_on(folder)
    with pytest.raises(ValueError, match="the texts must be those .*. Name a FILE to evaluate on"):
        evaluate(Writer.load(folder.path))


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (20, "the training part of the text must have at least 65 tokens, got 18. Add"),
        (0, "empty"),
    ],
)
def test_too_little_text_is_told(tmp_path, length, said):
    file = tmp_path / "text.txt"
    file.write_text("a" * length)
    settings = WriteSettings.from_preset("nano", files=[str(file)])
    with pytest.raises(ValueError, match=said):
        WRITE.begin(settings, RunFolder(tmp_path / "run"), "")
    assert not (tmp_path / "run" / "config.json").exists()


def broken(run, tmp_path, name, change):
    """A copy of a run with one of its files changed."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in run.path.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    change(copy / name)
    return copy


def rewrite(**changes):
    def change(file):
        value = json.loads(file.read_text())
        for path, new in changes.items():
            section, _, key = path.partition("__")
            if key:
                value[section][key] = new
            else:
                value[section] = new
        file.write_text(json.dumps(value))

    return change


@pytest.mark.parametrize(
    ("name", "change", "kind", "said"),
    [
        ("config.json", lambda file: file.unlink(), FileNotFoundError, "has no run"),
        ("config.json", lambda file: file.write_text("{"), ValueError, "broken JSON in line 1"),
        (
            "config.json",
            rewrite(task="classify"),
            ValueError,
            "must have a run of the task 'write', got one of 'classify'",
        ),
        ("config.json", rewrite(model={}), ValueError, "must have vocab_size, which is missing"),
        ("config.json", rewrite(model__d_model=24), ValueError, "does not fit the model"),
        (
            "config.json",
            rewrite(model__vocab_size=11),
            ValueError,
            "Use the tokenizer that it was",
        ),
        ("config.json", rewrite(model__norm=3), ValueError, "norm must be"),
        ("model.safetensors", lambda file: file.unlink(), FileNotFoundError, "--resume"),
        ("model.safetensors", lambda file: file.write_bytes(b"?"), ValueError, "safetensors"),
        ("tokenizer.json", lambda file: file.unlink(), FileNotFoundError, "tokenizer.json"),
        (
            "tokenizer.json",
            lambda file: file.write_text("{}"),
            ValueError,
            "does not hold a tokenizer",
        ),
    ],
)
def test_a_folder_that_is_half_there_is_told(run, tmp_path, name, change, kind, said):
    with pytest.raises(kind) as caught:
        Writer.load(broken(run, tmp_path, name, change))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


LETTERS = characters(["abc"])


PAIRS = train_bpe(["abc cab bca abab ☀☀"] * 3, 300)


def cut(text, stop):
    """The text before the stop string that is complete first, letter by letter."""
    for end in range(1, len(text) + 1):
        begins = [end - len(one) for one in stop if text[:end].endswith(one)]
        if begins:
            return text[: min(begins)]
    return text


@given(
    st.text("abc☀"),
    st.lists(st.text("abc☀", min_size=1, max_size=4), max_size=3),
    st.booleans(),
)
@example("abc", ["abc", "b"], True)
@example("aab", ["ab"], True)
@example("abcabc", ["abcabcc", "bc"], True)
@example("ababac", ["abac"], False)
def test_a_text_ends_before_the_stop_string_that_is_complete_first(text, stop, pairs):
    tokenizer = PAIRS if pairs else characters(["abc☀"])
    tokens, expected = tokenizer.encode(text), cut(text, stop)
    stopped, shown = StoppedText(tokenizer, stop=stop), ""
    for place, token in enumerate(tokens):
        shown += stopped.add(token)
        assert expected.startswith(shown)
        come = tokenizer.decode(tokens[: place + 1])
        assert stopped.stopped == (cut(come, stop) != come)
        if stopped.stopped:
            break
        # Nothing is held back that can no longer become a stop string.
        held = come[len(shown) :].rstrip("�")
        assert not held or any(one.startswith(held) for one in stop)
    assert shown + stopped.rest() == expected


def test_what_was_shown_before_is_no_part_of_a_stop_string():
    text = StoppedText(LETTERS, LETTERS.encode("ab"), ["abc", "bc"])
    assert [text.add(token) for token in LETTERS.encode("ca")] == ["c", ""]
    assert text.rest() == "a"
    assert not text.stopped


def test_a_stop_string_that_comes_with_the_rest():
    text = StoppedText(PAIRS, stop=["�"])
    # Of three bytes the last is missing, which is known when nothing follows.
    *begun, _ = train_bpe(["a"], 260).encode("☼")
    assert [text.add(token) for token in begun] == ["", ""]
    assert text.rest() == ""
    assert text.stopped


@pytest.mark.parametrize(
    ("stop", "error", "match"),
    [
        ("ab", TypeError, "stop must be several texts, got 'ab'. Put one into a list"),
        (None, TypeError, "stop must be several texts, got None. Put"),
        (["a", 3], TypeError, "stop must be texts, got int 3"),
        (["a", ""], ValueError, "stop must be texts of at least one character, got ''"),
    ],
)
def test_stop_strings_that_are_none(stop, error, match):
    with pytest.raises(error, match=match):
        checked_stop(stop)
