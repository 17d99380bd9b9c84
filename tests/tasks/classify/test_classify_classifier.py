"""Runs: what a folder holds, used and evaluated; and training that goes on."""

import math
from pathlib import Path

import pytest
import torch

from classified import SMALL, classified, texts
from classified import table as written_table
from glasshead.tasks.classify import CLASSIFY, ClassifySettings, TextClassifier, evaluate
from glasshead.tasks.run_folder import RunFolder
from written import written

TEXTS = ["", *texts(13, seed=5), "bad", "  ", "good " * 70, "\t"]
# Labels that are not in alphabetical order of their numbers.
LABELS = ("so so", "bad", "good")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = [(text, LABELS[number % 3]) for number, text in enumerate(texts(101, seed=3))]
    return written_table(tmp_path_factory.mktemp("tables") / "train.jsonl", rows)


@pytest.fixture(scope="module")
def run(tmp_path_factory, table):
    return classified(tmp_path_factory.mktemp("runs") / "run", files=(table,))


@pytest.fixture(scope="module")
def classifier(run):
    return TextClassifier.load(run.path)


def test_answers_are_the_likeliest_of_the_models_shares(classifier):
    model, tokenizer = classifier.model, classifier.tokenizer
    answers = classifier.classify(TEXTS)
    for text, answer in zip(TEXTS, answers, strict=True):
        tokens = tokenizer.encode(text)[:64] or [tokenizer.pad_id]
        length = min(64, len(tokenizer.encode(text)))
        shares = model(torch.tensor([tokens]), torch.tensor([length])).softmax(-1)[0].tolist()
        # The labels of a run are in alphabetical order.
        by_label = dict(zip(("bad", "good", "so so"), shares, strict=True))
        assert answer.shares == pytest.approx(by_label, abs=1e-5)
        assert answer.label == max(by_label, key=by_label.__getitem__)
        assert [*answer.shares] == sorted(by_label, key=by_label.__getitem__, reverse=True)
    assert {answer.label for answer in answers} == {*LABELS}


def test_a_text_is_classified_the_same_in_any_company(classifier):
    together = classifier.classify(TEXTS)
    backwards = classifier.classify(TEXTS[::-1])[::-1]
    alone = [classifier.classify([text])[0] for text in TEXTS]
    for own, one, other in zip(alone, together, backwards, strict=True):
        assert own.label == one.label == other.label
        assert one.shares == pytest.approx(own.shares, abs=1e-5)
        assert other.shares == pytest.approx(own.shares, abs=1e-5)
    assert classifier.classify([]) == []


def test_batches_take_no_more_tokens_than_they_may(classifier, monkeypatch):
    sizes = []
    forward = type(classifier.model).forward

    def counted(self, tokens, lengths):
        sizes.append(tokens.numel())
        return forward(self, tokens, lengths)

    monkeypatch.setattr(type(classifier.model), "forward", counted)
    told = []
    classifier.classify(TEXTS * 11, lambda *counts: told.append(counts))
    assert len(sizes) > 1
    assert max(sizes) <= classifier.settings.data.batch_tokens
    assert told == sorted(told)
    assert told[-1] == (len(TEXTS) * 11, len(TEXTS) * 11)


def test_what_stands_beyond_what_is_read_changes_nothing(tmp_path, table):
    run = classified(tmp_path / "run", "first=3", "last=2", files=(table,))
    one, other, third = TextClassifier.load(run.path).classify(
        ["the film was not so bad at all", "the film was quite a bad at all", "the film was it all"]
    )
    assert one == other
    assert one.shares != pytest.approx(third.shares, abs=1e-4)


def rows_by_answer(classifier, confusion):
    """Texts, as many of each label taken as each label as a matrix says."""
    by_answer = {label: [] for label in LABELS}
    some = texts(211, seed=7)
    for text, answer in zip(some, classifier.classify(some), strict=True):
        by_answer[answer.label].append((text, answer.shares))
    return [
        (*by_answer[given].pop(), label)
        for label, counts in confusion.items()
        for given, count in counts.items()
        for _ in range(count)
    ]


def test_an_evaluation_by_hand(classifier, tmp_path):
    counts = {
        "so so": {"so so": 1, "bad": 2},
        "bad": {"bad": 5, "good": 1},
        "good": {"bad": 1, "good": 3},
    }
    rows = rows_by_answer(classifier, counts)
    file = written_table(tmp_path / "test.jsonl", [(text, label) for text, _, label in rows])
    found = evaluate(classifier, [file])
    assert (found.texts, found.labels) == (13, ("bad", "good", "so so"))
    assert found.confusion == [[5, 1, 0], [1, 3, 0], [2, 0, 1]]
    assert found.accuracy == pytest.approx(9 / 13)
    # 2 · right / (2 · right + wrongly given + wrongly not given), of each label.
    f1 = (10 / (10 + 3 + 1), 6 / (6 + 1 + 1), 2 / (2 + 0 + 2))
    assert found.f1 == pytest.approx(sum(f1) / 3)
    loss = -sum(math.log(shares[label]) for _, shares, label in rows) / 13
    assert found.loss == pytest.approx(loss, rel=1e-5)


def test_an_evaluation_of_some_labels_alone(classifier, tmp_path):
    rows = rows_by_answer(classifier, {"good": {"good": 3}})
    file = written_table(tmp_path / "test.jsonl", [(text, label) for text, _, label in rows])
    found = evaluate(classifier, [file])
    assert (found.accuracy, found.f1) == (1, 1)
    assert found.confusion == [[0, 0, 0], [0, 3, 0], [0, 0, 0]]


def test_without_files_what_was_held_out_is_evaluated(classifier, run):
    prepared = CLASSIFY.go_on(run)
    batches = prepared.held_out.batches(0)
    prepared.task.model.load_state_dict(classifier.model.state_dict())
    prepared.task.model.eval()
    sums = [prepared.task.validate(prepared.held_out.collate(batch)) for batch in batches]
    figures = prepared.task.metrics(
        {name: sum(each[name] for each in sums).item() for name in sums[0]}
    )
    found = evaluate(classifier)
    assert found.texts == 10
    assert found.loss == pytest.approx(figures["loss"], rel=1e-5)
    assert found.accuracy == pytest.approx(figures["accuracy"], rel=1e-6)


def test_a_label_that_training_never_saw_is_refused(classifier, tmp_path):
    file = tmp_path / "test.csv"
    file.write_text('text,label\none,good\n"two\nlines",bad\nx,gut\n')
    with pytest.raises(ValueError, match=r"test\.csv, line 5: expected a label .* got 'gut'"):
        evaluate(classifier, [str(file)])


def test_a_run_of_another_task_is_told(tmp_path):
    with pytest.raises(
        ValueError, match=r"must have a run of the task 'classify', got one of 'write'\. Name"
    ):
        TextClassifier.load(written(tmp_path / "run").path)


def test_a_run_goes_on_with_the_same_texts_and_settings_alone(tmp_path, table):
    file = tmp_path / "own.jsonl"
    file.write_text(Path(table).read_text(encoding="utf-8"))
    folder = classified(tmp_path / "run", files=(str(file),))
    prepared = CLASSIFY.go_on(folder)
    again = CLASSIFY.go_on(folder, "tiny", ["made_up=211", *SMALL], [str(file)])
    indices = prepared.source.batches(1)[0]
    assert indices == again.source.batches(1)[0]
    found = (each.source.collate(indices).values() for each in (prepared, again))
    assert all(map(torch.equal, *found))
    for assignment in ("d_model=24", "label_smoothing=0.2", "first=9", "label=text", "pooling=max"):
        name = assignment.partition("=")[0]
        with pytest.raises(
            ValueError, match=rf"{name} must be .*, got .*, to resume the run in .*\. Use"
        ):
            CLASSIFY.go_on(folder, assignments=[assignment])
    with pytest.raises(ValueError, match=r"held_out_files must be \(\), got"):
        CLASSIFY.go_on(folder, held_out_files=[table])
    file.write_text(file.read_text().replace("so so", "fair"))
    with pytest.raises(
        ValueError, match="the texts must be those that the run in .* began with, got others"
    ):
        CLASSIFY.go_on(folder)
    with pytest.raises(ValueError, match="the texts must be those .*. Name a FILE to evaluate on"):
        evaluate(TextClassifier.load(folder.path))


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        (
            "context_length=7",
            r"context_length must be at least first \+ last, 64, got 7",
        ),
        ("batch_tokens=7", r"batch_tokens must be at least first \+ last, 64, got 7"),
        ("vocabulary=3", "vocabulary must be a whole number of at least 5, got 3"),
        ("tokenizer=bpe", "vocabulary must be a whole number of at least 260, got 259"),
    ],
)
def test_settings_that_do_not_fit_leave_no_run(tmp_path, table, assignment, said):
    assignments = ["d_model=12", "num_heads=3", "vocabulary=259", assignment]
    settings = ClassifySettings.from_preset("tiny", assignments, [table])
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(ValueError, match=said):
        CLASSIFY.begin(settings, folder, "")
    assert not folder.config.exists()
    classified(tmp_path / "run", files=(table,))
    assert TextClassifier.load(folder.path).settings.data.texts == 91
