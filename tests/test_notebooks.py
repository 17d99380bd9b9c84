"""What a notebook shows of results: tables and maps, small, escaped, and aligned as they are."""

import pytest
import torch

import glasshead as gh
from glasshead.drawing import HeatMap, Paragraph, sampled_map

# What Jupyter's own style says of the tables of an output.
JUPYTER = """
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th, .jp-RenderedHTMLCommon tr {
  vertical-align: middle; padding: 0.5em; border: none; max-width: none;
}
.jp-RenderedHTMLCommon:not(.jp-RenderedMarkdown) td,
.jp-RenderedHTMLCommon:not(.jp-RenderedMarkdown) th,
.jp-RenderedHTMLCommon:not(.jp-RenderedMarkdown) tr { text-align: right }
"""
CELLS = {
    "attention = gh.Attention(mask=gh.causal()); x = torch.randn(2, 3, 7, 5)": None,
    "attention.plan(x, x, x)": "GFLOP|kFLOP|FLOP",
    "attention.trace(x, x, x)": "masked",
    "attention.observe(x, x, x, [gh.Entropy(), gh.TopK(2)])": "top_k.keys",
    "attention.weights(x, x)": "Weights [2, 3, 7, 7]",
    "attention.weights(x, x).T": "transposed",
    """\
config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3)
model = gh.LanguageModel(config).eval()
cache = model.new_cache()
with gh.watch(model, [gh.Entropy(), gh.Received()], keep="weights") as seen:
    logits = model(torch.tensor([[3, 1, 4, 1]]), cache=cache)
    logits = model(torch.tensor([[5]]), cache=cache)
seen""": "blocks.1.attention",
    'seen["blocks.1.attention"]': "received",
    'seen["blocks.1.attention"][0]': "Call of 4 queries on 4 keys",
    'seen["blocks.1.attention"].weights': "JoinedWeights [1, 3, 5, 5] of 2 calls",
}


def watched():
    """A layer with an odd name, seen with its weights."""
    torch.manual_seed(1)
    model = torch.nn.ModuleDict({"<b>": torch.nn.MultiheadAttention(6, 3, batch_first=True)})
    x = torch.randn(2, 5, 6)
    with gh.watch(model, {"entropy": gh.Entropy()}, keep="weights") as seen:
        model["<b>"](x, x, x)
    return seen


def test_a_notebook_shows_each_result():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    start = nbformat.v4.new_code_cell("import torch, glasshead as gh")
    cells = [start, *map(nbformat.v4.new_code_cell, CELLS)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    for cell, said in zip(cells[1:], CELLS.values(), strict=True):
        if said is None:
            assert cell.outputs == []
            continue
        (output,) = cell.outputs
        html = output.data["text/html"]
        assert html.startswith('<div class="glasshead inset"')
        assert any(one in html for one in said.split("|")), said
        assert "<table" in html


def test_names_are_escaped():
    seen = watched()
    for shown in (seen, seen["<b>"], seen["<b>"][0]):
        html = shown._repr_html_()
        assert "<b>" not in html.partition("</style>")[2].replace("<b>·</b>", "")
    assert "&lt;b&gt;" in seen._repr_html_()
    assert "&lt;b&gt;: 1 call" in seen["<b>"]._repr_html_()


def test_a_large_matrix_is_shown_by_a_few_of_its_rows(monkeypatch):
    x = torch.randn(2, 1, 3, 4096, 5)
    W = gh.Attention(mask=gh.causal()).weights(*x)
    read = []
    kind = type(W.head(0, 0))
    tile = kind.tile

    def counted(self, rows, columns):
        read.append((rows, columns))
        return tile(self, rows, columns)

    monkeypatch.setattr(kind, "tile", counted)
    html = W._repr_html_()
    assert len(html) < 100_000
    assert "W[0, 0, :, :], queries × keys, 24 of 4096 rows, sums over 128 columns" in html
    assert len(read) == 24
    assert {len(rows) for rows, _ in read} == {1}
    assert (read[0][0].start, read[-1][0].start) == (0, 4095)


def test_a_trace_of_many_queries_stays_small():
    x = torch.randn(3, 1009, 5)
    html = gh.Attention().trace(*x)._repr_html_()
    assert len(html) < 100_000
    assert "weights[:, :], 24 of 1009 rows, sums over 32 columns" in html


def test_a_sampled_map_keeps_the_sum_of_each_row():
    rows = [[float(i * 67 + j) for j in range(67)] for i in range(29)]
    drawn = sampled_map(rows.__getitem__, 29, 67, of="counts")
    assert isinstance(drawn, HeatMap)
    # 67 columns in blocks of 3 are 23, the last of one column.
    assert list(drawn.columns) == [str(start) for start in range(0, 67, 3)]
    assert (drawn.rows[0], drawn.rows[-1], len(drawn.rows)) == ("0", "28", 24)
    for name, values in zip(drawn.rows, drawn.values, strict=True):
        assert sum(values) == sum(rows[int(name)])
    assert drawn.values[0][:2] == (0 + 1 + 2, 3 + 4 + 5)
    assert drawn.values[0][-1] == 66


def test_a_map_of_negative_weights_is_a_sentence():
    drawn = sampled_map(lambda _: [0.5, -0.25], 2, 2, of="W[:, :]")
    assert isinstance(drawn, Paragraph)
    assert drawn.text.startswith("W[:, :]: some weights are negative")


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 3, 7, 5)])
def test_nothing_to_draw_is_no_error(shape):
    x, y = torch.randn(*shape[:-2], 5, 3), torch.randn(*shape[:-2], 5, 3)
    queries, keys = x[..., : shape[-2], :], y[..., : shape[-1], :]
    attention = gh.Attention()
    assert "Weights" in attention.weights(queries, keys)._repr_html_()
    assert "context" in attention.trace(queries, keys, keys)._repr_html_()
    seen = attention.observe(queries, keys, keys, [gh.Entropy()])
    assert "entropy" in seen._repr_html_()


def test_an_empty_watch_and_shared_layers_are_shown():
    assert "Seen: 0 attentions" in gh.Seen({})._repr_html_()
    shared = gh.MultiHeadAttention(6, 2)
    twice = torch.nn.Sequential(shared, shared)
    with gh.watch(twice, [gh.Entropy()]) as seen:
        twice(torch.randn(1, 5, 6))
    (name,) = seen
    assert "Each run of the module is a layer of its own" in seen[name]._repr_html_()
    assert f"{name}#1" in seen._repr_html_()


def test_cells_stand_left_under_the_style_of_jupyter(browser):
    html = watched()["<b>"]._repr_html_()
    page = f"<!doctype html><style>{JUPYTER}</style><div class='jp-RenderedHTMLCommon'>{html}</div>"
    code = """() => [...document.querySelectorAll('.table th, .table td')].map(
        (cell) => [cell.textContent, getComputedStyle(cell).textAlign])"""
    with browser.new_page() as shown:
        shown.set_content(page)
        cells = dict(shown.evaluate(code))
    assert cells["entropy"] == "start"
    assert cells["[2, 3, 5]"] == "start"
    assert cells["unit"] == "start"
    assert cells["least"] == "end"  # a column of numbers
