"""The files that the tasks were tried on, where they are to be had."""

import gzip
from itertools import islice
from pathlib import Path

from glasshead.tasks.classify.train import read_labelled
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.translate import TRANSLATE, TranslateSettings


def test_reviews_are_half_of_each_label(data_folder):
    labelled = read_labelled([f"{data_folder}/imdb/test.jsonl.xz"])
    labels = [label for _, label in labelled]
    assert (labels.count("0"), labels.count("1")) == (12_500, 12_500)


def test_captions_are_read_from_packed_files_and_made_into_batches(data_folder, tmp_path):
    for name in ("train.de", "train.en"):
        with gzip.open(f"{data_folder}/multi30k/{name}.gz", "rt", encoding="utf-8") as file:
            (tmp_path / name).write_text("".join(islice(file, 1009)), encoding="utf-8")
    held_out = [f"{data_folder}/multi30k/val.{language}.gz" for language in ("de", "en")]
    files = [str(tmp_path / name) for name in ("train.de", "train.en")]
    settings = TranslateSettings.from_preset(
        "small", ["d_model=12", "num_heads=3", "vocabulary=700"], files, held_out
    )
    prepared = TRANSLATE.begin(settings, RunFolder(Path(tmp_path) / "run"), "")
    assert prepared.about == "1,009 pairs to train on, 1,014 held out"
    batches = prepared.source.batches(0)
    assert sorted(place for batch in batches for place in batch) == list(range(1009))
    batch = prepared.source.collate(batches[0])
    assert batch["source"].numel() <= 3000
    assert prepared.task.loss(batch) > 0
