"""The text that a view begins with: where it is from, and what stands in for it."""

import json

import pytest

from classified import classified, table
from glasshead.studio.app import application
from glasshead.studio.shell import about
from glasshead.studio.studio import Studio
from glasshead.studio.subject import beginning, sample_of
from glasshead.tasks.data.reviews import reviews
from glasshead.tasks.data.sentences import pairs
from glasshead.tasks.data.stories import stories
from glasshead.tasks.run_folder import RunFolder
from pretrained_folders import llama2c_files
from studio.asking import ask
from translated import translated
from written import written

LINES = [f"line {number} of a text that goes on.\n" for number in range(97)]


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("".join(LINES))
    return file


def test_a_text_that_was_cut_in_two_begins_with_a_line_of_its_held_out_part(text, tmp_path):
    run = written(tmp_path / "run", "held_out=0.3", files=(str(text),))
    sample = sample_of(run.path, "write")
    assert (sample.origin, sample.why) == ("held_out", "")
    whole = "".join(LINES)
    at = whole.index(sample.text)
    assert whole[at - 1] == "\n"
    # The first whole line after the cut, and whole sentences.
    assert 0 <= at - int(len(whole) * 0.7) < len(LINES[-1])
    assert sample.text.endswith(".")
    assert 200 <= len(sample.text) <= 400


def test_a_held_out_file_is_read_from_its_beginning(text, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("\n  Another text, text of a line.\n")
    run = written(tmp_path / "run", files=(str(text),), held_out=(str(other),))
    assert sample_of(run.path, "write").text == "Another text, text of a line."


def test_of_tables_it_is_the_first_held_out_text(tmp_path):
    rows = [(f"text {number}", "good" if number % 2 else "bad") for number in range(31)]
    files = (table(tmp_path / "rows.jsonl", rows),)
    run = classified(tmp_path / "classify", files=files)
    sample = sample_of(run.path, "classify")
    assert sample.origin == "held_out"
    held_out = {text for text, _ in rows} - set(training_texts(run, "classify"))
    assert sample.text in held_out


def training_texts(run, task):
    from glasshead.tasks.classify import CLASSIFY
    from glasshead.tasks.translate import TRANSLATE

    job = {"classify": CLASSIFY, "translate": TRANSLATE}[task]
    return [one for one, _ in job.read(job.settings.from_run(run).data).training]


def test_of_pairs_it_is_a_held_out_source(tmp_path):
    rows = [{"source": f"Satz {number}.", "target": f"Line {number}."} for number in range(31)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run = translated(tmp_path / "run", files=(str(file),))
    sample = sample_of(run.path, "translate")
    assert sample.origin == "held_out"
    assert sample.text.startswith("Satz ")
    assert sample.text not in training_texts(run, "translate")


def test_of_generated_data_it_is_a_text_that_no_run_is_trained_on(tmp_path):
    translator, classifier = translated(tmp_path / "t"), classified(tmp_path / "c")
    writer = written(tmp_path / "w")
    told = [
        (sample_of(translator.path, "translate"), {pair.german for pair in pairs(997)}),
        (sample_of(classifier.path, "classify"), {review.text for review in reviews(997)}),
        (sample_of(writer.path, "write"), set(stories(997))),
    ]
    for sample, trained in told:
        assert sample.origin == "held_out"
        assert sample.text not in trained


def test_where_the_data_are_gone_or_others_a_text_of_its_own_stands_in(text, tmp_path):
    run = written(tmp_path / "run", files=(str(text),))
    text.write_text("other words " * 67)
    changed = sample_of(run.path, "write")
    assert changed.origin == "unreadable"
    assert changed.text.startswith("Once upon a time")
    assert changed.why == (
        f"the texts of {text} must be those that the run was trained on, got others. Put them "
        "back, or choose a text."
    )
    text.unlink()
    gone = sample_of(run.path, "write")
    assert (gone.text, gone.origin) == (changed.text, "unreadable")
    assert gone.why == f"there is no file {text}. Check its name."


def test_a_model_alone_takes_a_text_of_the_studios_own(tmp_path):
    studio = Studio(llama2c_files(tmp_path))
    answer = ask(application(studio), "/api/sample")
    assert json.loads(answer.body) == {
        "text": studio.subject.sample().text,
        "origin": "own",
        "why": "",
    }
    assert about(studio)["first"] == "prompt"


def test_the_text_is_chosen_anew_where_the_run_has_changed(tmp_path, text):
    run = written(tmp_path / "run", files=(str(text),))
    subject = Studio(run.path).subject
    assert subject.sample() is subject.sample()
    text.unlink()
    assert subject.sample().origin == "held_out"
    run.config.write_text(run.config.read_text() + "\n")
    assert subject.sample().origin == "unreadable"


def test_without_a_model_there_is_none():
    studio = Studio()
    assert ask(application(studio), "/api/sample").status == 404
    assert about(studio)["first"] == "prompt"


def test_a_run_that_has_no_model_yet_opens_with_its_training(tmp_path):
    run = RunFolder(tmp_path / "run")
    written(run.path)
    studio = Studio(run.path)
    assert about(studio)["first"] == "prompt"
    run.weights.unlink()
    assert about(studio)["first"] == "training"


def test_stored_weights_open_with_their_map(tmp_path):
    (tmp_path / "kept.safetensors").write_bytes(b"")
    assert about(Studio(tmp_path / "kept.safetensors"))["first"] == "atlas"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["", " \n", " one "], "one"),
        (["a" * 20], "a" * 13),
        (["词。" * 10], "词。" * 6),
        # A sentence that ends in the first half is too short.
        (["No. but this goes on"], "No. but this"),
    ],
)
def test_a_long_text_is_cut_after_a_sentence_or_a_word(texts, expected):
    assert beginning(texts, longest=13) == expected


def test_texts_without_a_word_are_refused():
    with pytest.raises(ValueError, match=r"^the held-out texts of the run have no word\. Choose"):
        beginning(["", "\n"])
