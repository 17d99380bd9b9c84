"""A dataset is read row by row, as it would be in one text, here and by workers of Ray."""

import gc
import json
import os
import signal
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch
from torch import nn

import glasshead as gh
import systems
from glasshead.tasks.tokenizers import words

CONTEXT, HEADS = 7, 3
WORDS = ["the", "cat", "sat", "on", "mat", "and", "dog", "a"]
STATISTICS = [gh.Entropy(), gh.Received(), gh.MaxScore(), gh.MassOn([0])]
TEXTS = [" ".join(WORDS[(row * place) % 8] for place in range(row % 11)) for row in range(23)]
# A word of the first row alone.
TEXTS[0] = "once the cat sat"
TOKENIZER = words([" ".join([*WORDS, "once"])], vocab_size=17)


class Reader(nn.Module):
    """A model, of which the first process that reads a word is killed, once."""

    def __init__(self, deadly=None, marker=None):
        super().__init__()
        torch.manual_seed(3)
        config = gh.LanguageModelConfig(
            vocab_size=17, d_model=12, num_heads=HEADS, num_layers=2, context_length=CONTEXT
        )
        # Sums of numbers in float32 would be exact in float64, in any order.
        self.inner = gh.LanguageModel(config).double()
        for parameter in self.inner.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        self.deadly, self.marker = deadly, marker

    def forward(self, tokens):
        marker = self.marker
        if marker is not None and (tokens == self.deadly).any() and not marker.exists():
            marker.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner(tokens)


@pytest.fixture
def model():
    return Reader().eval()


def observed(model, dataset, statistics=STATISTICS, **options):
    given = {"tokenizer": TOKENIZER, "length": CONTEXT, "rows": 5, **options}
    return gh.observe_dataset(model, dataset, statistics, **given)


def assert_same_bits(found, expected):
    assert list(found) == list(expected)
    assert (found.documents, found.source) == (expected.documents, expected.source)
    for layer in expected:
        assert list(found[layer]) == list(expected[layer])
        for name, value in expected[layer].items():
            assert torch.equal(found[layer][name], value)


def test_rows_that_are_read_at_once_are_what_observe_texts_reads(model):
    found = observed(model, TEXTS, rows=len(TEXTS))
    expected = gh.observe_texts(model, TEXTS, STATISTICS, tokenizer=TOKENIZER, length=CONTEXT)
    for layer in expected:
        for name, value in expected[layer].items():
            assert torch.equal(found[layer][name], value)
    assert found.documents == expected.documents
    assert found.source["tokens"] == expected.source["tokens"]


def test_rows_are_added_up_as_chunks_of_several_texts(model):
    found = observed(model, TEXTS)
    parts = [
        gh.observe_texts(model, TEXTS[i : i + 5], STATISTICS, tokenizer=TOKENIZER, length=CONTEXT)
        for i in range(0, len(TEXTS), 5)
    ]
    tokens = torch.tensor([one.source["tokens"] for one in parts], dtype=torch.float64)
    assert found.source["tokens"] == tokens.sum()
    assert found.documents == sum(one.documents for one in parts)
    for layer in found:
        entropy = torch.stack([one[layer].entropy for one in parts])
        mean = (entropy * tokens[:, None]).sum(0) / tokens.sum()
        torch.testing.assert_close(found[layer].entropy, mean, atol=1e-12, rtol=1e-12)
        largest = torch.stack([one[layer].max_score for one in parts]).amax(0)
        assert torch.equal(found[layer].max_score, largest)
        # Of each seven tokens that stand together.
        full = torch.tensor([one.source["tokens"] // CONTEXT for one in parts]).double()
        received = torch.stack([one[layer].received for one in parts])
        mean = (received * full[:, None, None]).sum(0) / full.sum()
        torch.testing.assert_close(found[layer].received, mean, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", ["texts", "rows", "other column", "files", "folder", "table"])
def test_whatever_holds_the_texts(kind, model, tmp_path):
    options = {"column": "said"} if kind in ("other column", "table") else {}
    texts = TEXTS
    if kind in ("files", "folder"):
        # A file has a text in it.
        texts = [text for text in TEXTS if text]
        for place, text in enumerate(texts):
            (tmp_path / f"{place:02}.txt").write_text(text)
    if kind == "table":
        lines = [json.dumps({"said": text, "by": "me"}) for text in TEXTS]
        (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    dataset = {
        "texts": lambda: iter(TEXTS),
        "rows": lambda: ({"text": text, "id": 3} for text in TEXTS),
        "other column": lambda: [{"said": text, "text": 3} for text in TEXTS],
        "files": lambda: sorted(tmp_path.iterdir()),
        "folder": lambda: [tmp_path],
        "table": lambda: [Path(tmp_path / "rows.jsonl")],
    }[kind]()
    assert_same_bits(observed(model, dataset, **options), observed(model, texts))


def test_memory_does_not_grow_with_the_dataset(model):
    """The sums and the rows in hand; the text of each row takes 100 kB."""
    # What is imported and compiled the first time does not count.
    observed(model, ["cat sat on " * 3], [gh.Entropy()])

    def documents(count):
        for _ in range(count):
            # When the collector runs depends on all that the process did before.
            gc.collect()
            yield "cat sat on " * 3 + "x" * 100_000

    peaks = []
    # The collector is faster without all that the process made before.
    gc.freeze()
    for count in (2, 13):
        tracemalloc.start()
        observed(model, documents(count), [gh.Entropy()], rows=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    gc.unfreeze()
    assert peaks[1] < peaks[0] + 200_000


@pytest.mark.parametrize(
    ("dataset", "options", "kind", "sentence"),
    [
        ("the cat", {}, TypeError, "needs a ray.data.Dataset, or an iterable of texts"),
        (7, {}, TypeError, "got int. Pass a list of them"),
        (
            [["the cat"]],
            {},
            TypeError,
            "must be texts, Paths or dicts such as {'text': 'the cat sat'}",
        ),
        ([{"said": "the"}], {}, ValueError, "a column 'text', got 'said'. Name"),
        (
            [{"text": 3}],
            {},
            TypeError,
            "column 'text' of observe_dataset must hold texts, got int",
        ),
        (["", ""], {}, ValueError, "needs rows with a text, got none with a word in it"),
        ([], {}, ValueError, "needs rows with a text, got none with a word in it"),
        (["the"], {"statistics": []}, ValueError, r"needs statistics such as \[gh.Entropy"),
        (["the"], {"statistics": [gh.TopK(2)]}, ValueError, "statistics that add up over"),
        (["the"], {"rows": 0}, ValueError, "rows must be a whole number of at least 1"),
        (["the"], {"workers": "two"}, TypeError, "workers must be a whole number"),
        (["the"], {"length": 0}, ValueError, "length must be a whole number of at least 1"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(dataset, options, kind, sentence, model):
    statistics = options.pop("statistics", STATISTICS)
    with pytest.raises(kind, match=sentence):
        observed(model, dataset, statistics, **options)


@pytest.fixture(scope="module")
def ray():
    library = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ray[data]'")
    pytest.importorskip("ray.data")
    library.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=200 * 2**20,
        # Of the model's class, which is in this file.
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}},
    )
    library.data.DataContext.get_current().enable_progress_bars = False
    yield library
    library.shutdown()


def dataset_of(ray, blocks):
    return ray.data.from_items([{"text": text} for text in TEXTS], override_num_blocks=blocks)


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("blocks", "workers"), [(3, 1), (11, 2)])
def test_workers_of_ray_give_the_same_bits(blocks, workers, ray, model):
    found = observed(model, dataset_of(ray, blocks), workers=workers)
    assert_same_bits(found, observed(model, TEXTS))


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
@systems.signals
def test_rows_of_a_worker_that_dies_are_read_again_and_counted_once(ray, model, tmp_path):
    marker = tmp_path / "killed"
    # The first rows come last then, and are added first all the same.
    deadly = Reader(TOKENIZER.encode("once")[0], marker).eval()
    found = observed(deadly, dataset_of(ray, 7), workers=2)
    assert int(marker.read_text()) != os.getpid()
    expected = observed(model, TEXTS)
    assert_same_bits(found, expected)


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_a_worker_says_what_is_wrong(ray, model):
    with pytest.raises(Exception, match=r"must have a column 'said', got 'text'\. Name"):
        observed(model, dataset_of(ray, 3), column="said")
