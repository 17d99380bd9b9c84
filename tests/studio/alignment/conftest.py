"""A small translator, and a studio that shows it."""

import pytest

from glasshead.tasks.translate import TextTranslator
from translated import translated


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return translated(folder, "tokenizer=words", "num_decoder_layers=2", "context_length=17").path


@pytest.fixture(scope="module")
def translator(folder):
    return TextTranslator.load(folder)


@pytest.fixture(scope="module")
def url(folder, serving):
    return serving(folder).url
