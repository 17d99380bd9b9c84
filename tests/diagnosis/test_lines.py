"""The lines of code that a diagnosis gives, run on random queries, keys and values."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import glasshead as gh
from glasshead.drawing.code import Code

BATCH, HEADS, LENGTH, CHANNELS = 2, 3, 5, 7
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
# No rule shows these, and each query sees a key.
SCATTERED = CAUSAL.clone()
SCATTERED[3, 1] = False
KEYS = torch.tensor([True, True, False, True, False])
ROWS = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
BIAS = torch.linspace(-2, 3, 25).reshape(5, 5)
LOWEST = torch.finfo(torch.float32).min

SHOWN = {
    "causal": CAUSAL,
    "scattered": SCATTERED,
    "three axes": SCATTERED.expand(HEADS, 5, 5),
    "four axes": SCATTERED.repeat(BATCH, HEADS, 1, 1),
    "keys": KEYS,
    "rows": ROWS,
    "rows of four axes": ROWS[:, None, None, :],
    "one cell": torch.tensor([[True]]),
}
OF_TWO_VALUES = {
    "bool": lambda shown: shown,
    "int64": lambda shown: shown.long(),
    "uint8": lambda shown: shown.byte(),
    "float": lambda shown: shown.float(),
    "array": lambda shown: shown.numpy(),
    "array of uint16": lambda shown: shown.numpy().astype("uint16"),
    "array of other byte order": lambda shown: shown.numpy().astype(">f4"),
    "array of long doubles": lambda shown: shown.numpy().astype(np.longdouble),
    "array read backwards": lambda shown: shown.numpy()[..., ::-1].copy()[..., ::-1],
    "lists": lambda shown: shown.tolist(),
    "list of tensors": list,
}


def check(mask, **stated):
    """Whether each line gives what the diagnosis' own mask and bias give; the diagnosis."""
    diagnosis = gh.diagnose(mask, **stated)
    assert diagnosis.conversion is not None, diagnosis.findings
    query, key, value = torch.randn(3, BATCH, HEADS, LENGTH, CHANNELS).unbind()
    attention = gh.Attention(engine="reference")
    expected = attention(query, key, value, mask=diagnosis.mask, bias=_like(diagnosis.bias))
    names = {"gh": gh, "torch": torch, "F": F, "mask": mask}
    names |= {"query": query, "key": key, "value": value}
    if diagnosis.sdpa is not None:
        exec(f"context = {diagnosis.sdpa}", names)
        assert torch.allclose(names["context"], expected, atol=1e-5), diagnosis.sdpa
    exec(diagnosis.conversion, names)
    made = attention(query, key, value, mask=names["mask"], bias=_like(names.get("bias")))
    assert torch.allclose(made, expected, atol=1e-5), diagnosis.conversion
    return diagnosis


def _like(bias):
    return None if bias is None else bias.float()


@pytest.mark.parametrize("form", OF_TWO_VALUES)
@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("convention", ["attend", "hidden"])
def test_the_lines_of_a_mask_of_two_values_run_and_agree(name, form, convention):
    cells = SHOWN[name] if convention == "attend" else ~SHOWN[name]
    diagnosis = check(OF_TWO_VALUES[form](cells), convention=convention, queries=5, keys=5)
    by_key = name in ("keys", "rows")
    assert diagnosis.sdpa is not None or (form == "bool" and not by_key)


@pytest.mark.parametrize("form", ["int64", "lists"])
def test_the_lines_of_a_tokenizers_mask_run_and_agree(form):
    for shown in (ROWS, torch.tensor([[True], [True]])):
        check(OF_TWO_VALUES[form](shown), convention="tokenizer", keys=5)


@pytest.mark.parametrize("low", [-torch.inf, LOWEST, -1e9, -1e4])
@pytest.mark.parametrize("name", [name for name in SHOWN if name != "rows"])
@pytest.mark.parametrize("form", ["tensor", "double", "array", "lists", "list of tensors"])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_lines_of_an_additive_mask_run_and_agree(name, low, form, with_bias):
    shown = SHOWN[name]
    bias = BIAS[-shown.shape[-2] if shown.ndim > 1 else 0, -shown.shape[-1] :]
    bias = (bias if with_bias else 0 * bias).expand(shown.shape)
    mask = bias.masked_fill(~shown, low)
    forms = {"tensor": mask, "double": mask.double(), "array": mask.double().numpy()}
    forms |= {"lists": mask.tolist(), "list of tensors": list(mask)}
    check(forms[form], convention="additive", queries=5, keys=5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16])
@pytest.mark.parametrize("name", ["scattered", "keys", "rows", "rows of four axes"])
def test_whole_numbers_that_are_added_run_and_agree(name, dtype):
    hidden = (~SHOWN[name]).to(dtype) * -10_000
    # Stated as additive, two axes are queries and keys where a row changes twice.
    ways = ({},) if name == "rows" else ({}, {"convention": "additive"})
    for mask in (hidden, hidden - 5 * torch.eye(5, dtype=dtype)[0]):
        for stated in ways:
            diagnosis = check(mask, **stated)
            assert [finding.kind for finding in diagnosis.findings].count("integers") == 1
            assert (diagnosis.bias is None) == bool((mask % 10_000 == 0).all())


def test_a_bias_reaches_sdpa_beside_a_causal_mask():
    diagnosis = check(BIAS.masked_fill(~CAUSAL, -1e9))
    assert "is_causal" not in diagnosis.sdpa
    assert check(BIAS.masked_fill(~CAUSAL, LOWEST)).sdpa is None


def test_a_causal_mask_that_begins_elsewhere_is_not_what_torch_calls_causal():
    diagnosis = gh.diagnose(~torch.ones(5, 5, dtype=torch.bool).tril(2), offset=2)
    assert diagnosis.conversion == "mask = gh.causal()"
    assert "is_causal" not in diagnosis.sdpa


def test_floats_above_zero_are_added_and_list_no_keys():
    mask = torch.tensor([[0.3, 0.0, 0.0], [0.1, 0.2, 0.0]])
    diagnosis = gh.diagnose(mask)
    assert torch.equal(diagnosis.bias, mask)
    assert diagnosis.conversion == "mask, bias = gh.from_additive(mask)"


@pytest.mark.parametrize("width", [20, 31, 43, 80])
def test_broken_code_is_the_same_code(width):
    import ast

    line = (
        "mask, bias = gh.from_additive((~mask.masked_fill(mask <= -1000000000.0, -torch.inf))"
        "[:, None, None, :], gh.documents([0, 0, 1, 1, 2, 2, 2]) & gh.padding([5, 3, 2, 31]))"
    )
    drawn = Code(line).as_text(width)
    margin = len(drawn) - len(drawn.lstrip())
    copied = "\n".join(part[margin:] for part in drawn.splitlines())
    assert ast.dump(ast.parse(copied)) == ast.dump(ast.parse(line))
    assert width < 43 or max(map(len, drawn.splitlines())) <= width
    assert "mask <= -1000000000.0" in " ".join(drawn.split())


def test_code_that_cannot_be_broken_is_wider_than_the_canvas():
    line = "mask = glasshead.recipe.masks.window_of_a_long_name()"
    assert Code(line).as_text(20) == line


def test_the_page_has_the_code_as_it_is():
    assert "attn_mask=mask.bool()[:, None, None, :]" in gh.diagnose(ROWS.long()).html()


def test_lines_stand_below_each_other_on_a_page():
    diagnosis = gh.diagnose(torch.ones(4, 9).tril())
    assert diagnosis.conversion
    assert diagnosis.sdpa
    page = diagnosis.html()
    code = page[page.index(diagnosis.conversion) :]
    code = code[: code.index("</code>")]
    assert "\\n" not in code
    assert len(code.splitlines()) > 1
    assert max(map(len, code.splitlines())) <= 72
