"""Notebooks: what they show of results, and those for the readers of the texts, which are run."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

import forked
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
ROOT = Path(__file__).parents[1]
NUMBERS = json.loads((ROOT / "tests" / "data" / "seed_numbers.json").read_text())
CHAPTER = (NUMBERS["ran_here"], NUMBERS["shiny_sun"]["exact_scores"])
ARTICLE = NUMBERS["scaled_dot_product_article"]
# What stands in the headings of each notebook, in order.
HEADINGS = {
    "a-tr": """
        Öz dikkat (self-attention)
        Dikkat puanları (attention scores)
        Bağlam vektörü (context vector)
        Eğitilebilir ağırlıklarla
        Nedensel dikkat (causal attention)
        Seyreltme (dropout)
        Çok başlı dikkat (multi-head attention)
        Ters sıcaklık β
        Maske
        Baş sayısı
        çeviri modeli
        yeni modellerin katmanları
        gruplanmış sorgular (grouped queries)
        çok başlı gizil dikkat (multi-head latent attention)
        kayan pencere (sliding window) ve yutaklar (sinks)
        seyrek seçim (sparse selection)
        kapılı dikkat (gated attention)
        delta kuralı (delta rule)
    """,
    "b-es": """
        Autoatención (self-attention)
        puntuaciones de atención (attention scores)
        vector de contexto (context vector)
        pesos entrenables
        Atención causal (causal attention)
        Dropout
        Atención multicabeza (multi-head attention)
        temperatura inversa β
        máscara
        número de cabezas
        modelo de traducción
        capas de modelos más nuevos
        consultas agrupadas (grouped queries)
        atención latente multicabeza (multi-head latent attention)
        ventana deslizante (sliding window) y sumideros (sinks)
        selección dispersa (sparse selection)
        atención con compuerta (gated attention)
        la regla delta (delta rule)
    """,
    "c-zh-Hant": """
        縮放點積注意力（scaled dot-product attention）
        可訓練的權重矩陣（weight matrices）
        注意力分數（attention scores）
        注意力權重（attention weights）
        上下文向量（context vector）
        SelfAttention_v1
        逆溫度 β
        遮罩（mask）
        多個注意力頭（multi-head attention）
        訓練好的模型
        新模型的層
        分組查詢（grouped queries）
        多頭潛在注意力（multi-head latent attention）
        滑動視窗（sliding window）與匯點（sink）
        稀疏選擇（sparse selection）
        門控注意力（gated attention）
        delta 法則（delta rule）
    """,
    "d-tr": """
        dönüştürücü (transformer)
        Öz dikkat (self-attention)
        h = Xa
        Keskin (hard) ve yumuşak (soft) dikkat
        H = XA
        Anahtar-değer depolama (key-value store)
        Lazanya
        Neden β = 1/√d
        başlar (heads)
        MultiHeadAttention
        Öz dikkat ve çapraz dikkat
        Kodlayıcı (encoder)
        Çözücü (decoder)
        Duygu sınıflandırıcısı (sentiment classifier)
    """,
    "e-zh-Hans": """
        缩放点积注意力机制（scaled dot-product attention）
        参数矩阵：查询（query）、键（key）、值（value）
        注意力分数（attention scores）
        注意力权重（attention weights）
        上下文向量（context vector）
        ScaledDotProductAttention
        softmax 的导数与饱和
        逆温度 β
        掩码（mask）
        多个注意力头（multi-head attention）
        拿掉缩放
        新模型的层
        分组查询（grouped queries）
        多头潜在注意力（multi-head latent attention）
        滑动窗口（sliding window）与汇点（attention sink）
        稀疏选择（sparse selection）
        门控注意力（gated attention）
        delta 规则（delta rule）
    """,
    "english": """
        Self-attention
        attention scores
        context vector
        trainable weights
        Causal attention
        Dropout
        Multi-head attention
        inverse temperature β
        mask
        number of heads
        learn to copy
        layers of newer models
        grouped queries
        multi-head latent attention
        sliding window and sinks
        sparse selection
        gated attention
        the delta rule
    """,
}
# The numbers that each text prints, to four places.
FROM_RAND = {name: ARTICLE[name] for name in ("rand_query_2", "rand_keys", "rand_values")}
FROM_LINEAR = {
    name: ARTICLE[name]
    for name in (
        "linear_query_2",
        "linear_keys",
        "linear_values",
        "scores_2",
        "weights_2",
        "context_2",
        "module_output",
    )
}
PRINTED = {
    "a-tr": CHAPTER,
    "b-es": CHAPTER,
    "c-zh-Hant": FROM_RAND,
    "d-tr": (0.8614, 0.8047),
    "e-zh-Hans": (FROM_RAND, FROM_LINEAR, ARTICLE["softmax_sharpness"]["times_1"]),
    "english": CHAPTER,
}
# Characters of the other script, which stand in no text of this one.
STRANGE = {
    "c-zh-Hant": "这个们时对说发过还进应词维头键两权",
    "e-zh-Hans": "這個們時對說發過還進應詞維頭鍵兩權",
}
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
    formatters = pytest.importorskip("IPython.core.formatters")
    names = {"torch": torch, "gh": gh}
    for cell, said in CELLS.items():
        *statements, last = ast.parse(cell).body
        exec(compile(ast.Module(statements, []), "<cell>", "exec"), names)
        if said is None:
            exec(compile(ast.Module([last], []), "<cell>", "exec"), names)
            continue
        assert isinstance(last, ast.Expr)
        result = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
        html = formatters.DisplayFormatter().format(result)[0]["text/html"]
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


@pytest.fixture(scope="module")
def build():
    """The module that runs the notebooks."""
    for needed in ("jupytext", "nbclient", "ipykernel", "tokenizers", "transformers"):
        pytest.importorskip(needed)
    spec = importlib.util.spec_from_file_location("build", ROOT / "notebooks" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def forked_kernel(command, *, cwd, env, **_):
    """Start a kernel that has imported PyTorch and the library already."""
    # The parent of a fork is another process.
    own = {name: value for name, value in env.items() if name != "JPY_PARENT_PID"}
    return forked.Process(*command[1:], cwd=cwd, env=own, process_group=0)


def shown(notebook):
    """What each cell shows: its printed text, and the kinds of what it draws."""
    return [
        (
            output.output_type,
            output.get("text")
            or ("text/html" in output.data or output.data["text/plain"], sorted(output.data)),
        )
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    ]


def words_drawn(notebook):
    """The words of each drawing, without its numbers, which may end in another digit elsewhere."""
    drawn = [
        output.data["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "text/html" in output.get("data", {})
    ]
    texts = [re.sub(r"<style.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL) for html in drawn]
    return [re.sub(r"[-−]?\d[\d.,e−-]*", "#", text) for text in texts]


def printed(notebook):
    """All text that the cells of a notebook print."""
    return "".join(
        output.get("text") or output.data.get("text/plain", "")
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    )


def flattened(numbers):
    """Yield the numbers of lists and dicts in one another."""
    if isinstance(numbers, float | int):
        yield numbers
    else:
        for part in numbers.values() if isinstance(numbers, dict) else numbers:
            yield from flattened(part)


def test_there_is_a_notebook_for_each_text(build):
    assert build.names() == sorted(HEADINGS) == sorted(PRINTED)


DRAWN = """\
class Drawn:
    def _repr_html_(self):
        return "<p>"
Drawn()"""


def test_a_run_keeps_what_cells_print_and_draw_without_addresses(build):
    import nbformat

    cells = [nbformat.v4.new_code_cell(source) for source in ("print(2 + 3)", DRAWN)]
    kernel = {"display_name": "Python", "name": "python3"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    build.execute(notebook)
    (printed,), (drawn,) = (cell.outputs for cell in notebook.cells)
    assert (printed.output_type, printed.text) == ("stream", "5\n")
    assert drawn.data == {"text/html": "<p>", "text/plain": "<Drawn>"}


@pytest.mark.parametrize("name", HEADINGS)
class TestNotebook:
    def test_is_made_of_the_text_beside_it(self, build, name):
        text, notebook = build.read(name), build.stored(name)
        assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
            (cell.cell_type, cell.source) for cell in text.cells
        ]

    @pytest.mark.slow
    def test_shows_the_same_when_it_is_run(self, build, name, monkeypatch):
        provisioner = "jupyter_client.provisioning.local_provisioner"
        monkeypatch.setattr(f"{provisioner}.launch_kernel", forked_kernel)
        run, stored = build.execute(build.read(name)), build.stored(name)
        assert shown(run) == shown(stored)
        assert words_drawn(run) == words_drawn(stored)
        assert run.cells[1].source.startswith("import importlib.util")
        assert run.cells[1].outputs == []  # installs nothing where glasshead is installed

    def test_draws_and_prints_without_errors_paths_and_times(self, build, name):
        stored = build.stored(name)
        outputs = [output for cell in stored.cells for output in cell.get("outputs", ())]
        assert {output.output_type for output in outputs} <= {
            "stream",
            "display_data",
            "execute_result",
        }
        assert "stderr" not in {output.get("name") for output in outputs}
        drawn = [each.data["text/html"] for each in outputs if "text/html" in each.get("data", {})]
        assert len(drawn) >= 8
        assert all(html.startswith('<div class="glasshead inset"') for html in drawn)
        everything = printed(stored) + "".join(drawn)
        assert not re.search(r"/(home|work|tmp|root|usr)/|site-packages| at 0x", everything)
        assert not re.search(r"\d ?(s|ms|µs|sn|秒)\b", printed(stored))

    def test_prints_every_number_of_its_text(self, build, name):
        text = printed(build.stored(name))
        for number in flattened(PRINTED[name]):
            assert f"{number:.4f}" in text, number

    def test_has_headings_in_its_language(self, build, name):
        prose = "\n".join(
            cell.source for cell in build.read(name).cells if cell.cell_type == "markdown"
        )
        headings = re.findall(r"^#+ .*$", prose, re.MULTILINE)
        assert headings[0].startswith("# ")
        assert [heading[:2] for heading in headings].count("# ") == 1
        rest = "\n".join(headings).lower()
        for words in map(str.strip, HEADINGS[name].strip().splitlines()):
            found = rest.find(words.lower())
            assert found >= 0, words
            rest = rest[found:]

    def test_links_lead_somewhere(self, build, name):
        for cell in build.read(name).cells:
            if cell.cell_type == "markdown":
                prose = re.sub("`[^`]*`", "", cell.source)
                for place in re.findall(r"\]\((?!https?:|#)([^)]+)\)", prose):
                    assert (ROOT / "notebooks" / place).exists(), place


@pytest.mark.parametrize("name", STRANGE)
def test_chinese_has_its_own_script_and_punctuation(build, name):
    prose = "\n\n".join(
        re.sub("`[^`]*`", "", cell.source)
        for cell in build.read(name).cells
        if cell.cell_type == "markdown"
    )
    assert not set(STRANGE[name]) & set(prose)
    assert not re.search(r"[\u4e00-\u9fff][,:;?!()]|[,:;?!()][\u4e00-\u9fff]", prose)
    assert not re.search(r"[\u4e00-\u9fff，。：；]\n[\u4e00-\u9fff]", prose)  # a space when drawn


def test_the_article_prints_sharp_weights_in_five_digits(build):
    text = printed(build.stored("e-zh-Hans"))
    for name in ("times_10", "times_100"):
        for number in ARTICLE["softmax_sharpness"][name]:
            assert f"{number:.4e}" in text, number


def test_build_refuses_a_name_that_is_none(build, capsys):
    assert build.main(["a-fr"]) == 2
    assert "name must be one of a-tr, b-es, c-zh-Hant, " in capsys.readouterr().err
