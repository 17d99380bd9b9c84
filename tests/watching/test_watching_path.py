"""The path of a watched call: the files that it crosses, from the model to the record."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from crossings import crossed
from scripts import ROOT


class Fused(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)


class Masked(nn.Module):
    def forward(self, x):
        mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


class ByHand(nn.Module):
    def forward(self, x):
        return (x @ x.mT / 3.0).softmax(-1) @ x


def path(attention):
    """The files that a call crosses, once a whole pass has shown how the model attends."""
    model, x = nn.Sequential(nn.Linear(7, 7), attention()), torch.randn(2, 3, 11, 7)
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        model(x)
        files = crossed(lambda: model(x))
    assert len(seen["1"]) == 3
    return files


@pytest.mark.parametrize(("attention", "most"), [(Fused, 26), (Masked, 26), (ByHand, 28)])
def test_a_watched_call_crosses_few_files(attention, most):
    files = path(attention)
    assert 20 < len(files) <= most, files


@pytest.mark.parametrize("attention", [Fused, Masked, ByHand])
def test_a_call_passes_the_stages_in_their_order(attention):
    names = ["interception/session", "watcher", "placing", "observing", "recording"]
    stages = [f"/watching/{name}.py" for name in names]
    assert [one for one in path(attention) if one in stages] == stages


def test_the_page_on_the_path_and_its_figure_name_the_classes_of_the_code():
    page, figure = (
        (ROOT / "docs" / file).read_text(encoding="utf-8")
        for file in ("concepts/watched_call.md", "pictures/watched_call.svg")
    )
    files = dict(re.findall(r"\[`(\w+)`\]\(\.\./\.\./(glasshead/\S+\.py)\)", page))
    drawn = re.findall(r'class="code class"[^>]*>(\w+)<', figure)
    assert [*files] == [*drawn, "MissedAttention"]
    assert "MissedAttention" in figure
    for name, file in files.items():
        assert f"\nclass {name}" in (ROOT / file).read_text(encoding="utf-8"), name
