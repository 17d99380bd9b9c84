"""Runs: what a folder holds, translated with; and training that goes on."""

import pytest
import torch

from glasshead.models.decoding import Beam, Greedy
from glasshead.tasks.data.sentences import pairs
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.translate import TRANSLATE, TextTranslator, TranslateSettings
from translated import SMALL, translated
from written import written

GERMAN = [pair.german for pair in pairs(7, seed=5)]
# Of very unequal lengths, with nothing at the ends and in between.
TEXTS = ["", "Ja", *GERMAN[:2], "  ", GERMAN[2], " ".join(GERMAN[3:]), "", "Wir lesen.", "\t"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return translated(tmp_path_factory.mktemp("runs") / "run", "tokenizer=words")


@pytest.fixture(scope="module")
def translator(run):
    return TextTranslator.load(run.path)


def tokens_of(translations):
    return [(each.source, each.text, each.source_tokens, each.tokens) for each in translations]


def test_greedy_translations_are_what_the_whole_model_tells_token_by_token(translator):
    model, tokenizer = translator.model, translator.tokenizer
    for translation in translator.translate(GERMAN[:2], Greedy()):
        source = torch.tensor([tokenizer.encode(translation.source)])
        target = [tokenizer.start_id]
        # As many as it may have: twice as many as the text and 10, rounded up to 32.
        assert 10 < 2 * source.shape[1] + 10 <= 32
        for _ in range(32):
            shown = torch.tensor([target])
            logits = model(source, torch.tensor([source.shape[1]]), shown)[0, -1]
            logits[[tokenizer.pad_id, tokenizer.start_id]] = -torch.inf
            if logits.argmax() == tokenizer.end_id:
                break
            target.append(int(logits.argmax()))
        assert list(translation.tokens) == target[1:]
        assert translation.text == tokenizer.decode(target[1:]).strip()
        assert list(translation.source_tokens) == source[0].tolist()


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=str)
def test_a_start_and_padding_are_never_written(run, strategy):
    translator = TextTranslator.load(run.path)
    model, tokenizer = translator.model, translator.tokenizer
    weight = model.embedding.tokens.weight
    with torch.no_grad():
        # One of them is always the likeliest by far.
        weight[tokenizer.start_id] *= 20
        weight[tokenizer.pad_id] = -weight[tokenizer.start_id]
        source = torch.tensor([tokenizer.encode(GERMAN[0])])
        shown = torch.tensor([[tokenizer.start_id]])
        logits = model(source, torch.tensor([source.shape[1]]), shown)[0, -1]
    never = {tokenizer.start_id, tokenizer.pad_id}
    assert int(logits.argmax()) in never
    written = [{*each.tokens} for each in translator.translate(GERMAN[:3], strategy)]
    assert all(tokens and not tokens & never for tokens in written)


def test_a_beam_of_one_is_greedy(translator):
    found = translator.translate(TEXTS, Beam(1))
    assert tokens_of(found) == tokens_of(translator.translate(TEXTS, Greedy()))
    assert tokens_of(found) != tokens_of(translator.translate(TEXTS, Beam(3)))


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3, length_penalty=0.6)], ids=str)
def test_a_text_is_translated_the_same_in_any_company(translator, strategy):
    together = tokens_of(translator.translate(TEXTS, strategy))
    alone = [tokens_of(translator.translate([text], strategy))[0] for text in TEXTS]
    assert together == alone
    assert tokens_of(translator.translate(TEXTS[::-1], strategy)) == alone[::-1]
    words = [text for source, text, *_ in alone if source.strip()]
    assert len({*words}) == len(words)


def test_what_has_no_word_is_translated_as_nothing(translator, tmp_path):
    # To byte pairs, spaces are tokens too.
    of_pairs = TextTranslator.load(translated(tmp_path / "run").path)
    assert of_pairs.tokenizer.encode("  ")
    for each in (translator, of_pairs):
        texts = ["", "Ja", "  ", "Nein", "\t"]
        found = each.translate(texts, Beam(2))
        assert [text.source for text in found] == texts
        assert [text.tokens == () for text in found] == [True, False, True, False, True]
        assert [found[place].text for place in (0, 2, 4)] == ["", "", ""]
        assert each.translate([]) == []
        assert [text.text for text in each.translate(["", " "])] == ["", ""]


def test_progress_is_told_up_to_the_last_text(translator):
    told = []
    translator.translate(TEXTS, Greedy(), lambda *counts: told.append(counts))
    done = [count for count, _ in told]
    assert done == sorted(done)
    assert told[-1] == (len(TEXTS), len(TEXTS))


def test_a_text_longer_than_the_model_reads_is_refused(translator):
    most = translator.model.config.context_length
    fits, longer = "und " * most, "und " * (most + 1)
    assert translator.translate([fits], Greedy())[0].tokens
    with pytest.raises(
        ValueError, match=f"text 2 must have at most the {most} tokens .*, got {most + 1}"
    ):
        translator.translate([fits, longer])


def test_a_run_of_another_task_is_told(run, tmp_path):
    other = written(tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"must have a run of the task 'translate', got one of 'write'\. Name"
    ):
        TextTranslator.load(other.path)


FILES = ("train.de", "train.en")


@pytest.fixture
def files(tmp_path):
    both = pairs(211, seed=3)
    for name, side in zip(FILES, ("german", "english"), strict=True):
        (tmp_path / name).write_text("".join(f"{getattr(pair, side)}\n" for pair in both))
    return tuple(str(tmp_path / name) for name in FILES)


def test_a_run_goes_on_with_the_same_pairs_and_settings_alone(files, tmp_path):
    folder = translated(tmp_path / "run", files=files)
    prepared = TRANSLATE.go_on(folder)
    again = TRANSLATE.go_on(folder, "tiny", ["made_up=211", *SMALL], files)
    for batch in (0, 1):
        indices = prepared.source.batches(batch)[0]
        assert indices == again.source.batches(batch)[0]
        found = (each.source.collate(indices) for each in (prepared, again))
        assert all(map(torch.equal, *(tensors.values() for tensors in found)))
    longer = TRANSLATE.go_on(folder, assignments=["steps=901", "validate_every=3"])
    assert longer.settings.training.steps == 901
    for assignment in ("d_model=24", "label_smoothing=0.2", "lowercase=true", "batch_tokens=999"):
        name = assignment.partition("=")[0]
        with pytest.raises(
            ValueError, match=rf"{name} must be .*, got .*, to resume the run in .*\. Use"
        ):
            TRANSLATE.go_on(folder, assignments=[assignment])
    with pytest.raises(ValueError, match="held_out_files must be .*, got"):
        TRANSLATE.go_on(folder, held_out_files=files)
    with pytest.raises(
        ValueError, match="the texts must be those that the run in .* began with, got others"
    ):
        TRANSLATE.go_on(folder, files=files[::-1])
    (tmp_path / "train.de").write_text("anders\n" * 211)
    with pytest.raises(
        ValueError, match="the texts must be those that the run in .* began with, got others"
    ):
        TRANSLATE.go_on(folder)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        (
            "context_length=7",
            r"context_length must be at least \d+, the tokens of the longest text",
        ),
        ("batch_tokens=7", r"batch_tokens must be at least \d+, the tokens of the longest text"),
        ("vocabulary=100", "vocabulary must be .*at least 260.*, got 100"),
        ("tokenizer=wordpiece vocabulary=11", "vocabulary must be at least .*, got 11"),
    ],
)
def test_settings_that_do_not_fit_the_pairs_leave_no_run(files, tmp_path, assignment, said):
    assignments = ["d_model=12", "num_heads=3", *assignment.split()]
    settings = TranslateSettings.from_preset("tiny", assignments, files)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(ValueError, match=said):
        TRANSLATE.begin(settings, folder, "")
    assert not folder.config.exists()
    translated(tmp_path / "run", files=files)
    assert TextTranslator.load(folder.path).settings.data.pairs == 190
