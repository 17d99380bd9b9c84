"""Files of their own that a language model is validated with."""

import pytest

from glasshead.tasks.write import Writer, WriteSettings, evaluate
from glasshead.tasks.write.train import WriteData, read_corpus
from written import written


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.txt").write_text("One sunny day Emma took her ball. " * 40)
    (tmp_path / "valid.txt").write_text("Her red ball was under the tree. " * 7)
    return str(tmp_path / "train.txt"), str(tmp_path / "valid.txt")


def test_all_of_the_others_is_trained_on(files):
    train, valid = files
    corpus = read_corpus(WriteData(files=(train,), held_out_files=(valid,)))
    assert corpus.training == ("One sunny day Emma took her ball. " * 40,)
    assert corpus.held_out == ("Her red ball was under the tree. " * 7,)
    # Without them, a part of the text is held out.
    (cut,) = read_corpus(WriteData(files=(train,))).training
    assert len(cut) == 34 * 36


def test_they_are_what_a_run_is_evaluated_on(files, tmp_path):
    train, valid = files
    writer = Writer.load(written(tmp_path / "run", files=(train,), held_out=(valid,)).path)
    assert evaluate(writer) == evaluate(writer, [valid])
    (tmp_path / "valid.txt").write_text("Her red ball. " * 7)
    with pytest.raises(ValueError, match="the texts are not those .*: name a FILE to evaluate on"):
        evaluate(writer)


def test_they_take_files_to_train_on():
    with pytest.raises(ValueError, match="--held-out takes files beside those that are trained on"):
        WriteSettings.from_preset("nano", held_out_files=["valid.txt"])
