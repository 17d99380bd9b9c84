"""The example of digits in clutter: its pictures, its measure, and what it tells and draws."""

import sys

import pytest
import torch

import glasshead as gh
from scripts import script

transformers = pytest.importorskip("transformers")
DIGITS = 13


@pytest.fixture(scope="module")
def clutter():
    return script("examples/digits_in_clutter.py")


@pytest.fixture
def known(clutter):
    """Digits that are all one number, another for each, so that their pixels can be told apart."""
    values = torch.arange(1, DIGITS + 1) / DIGITS
    pixels = values[:, None, None].expand(DIGITS, 8, 8).contiguous()
    return clutter.Digits(pixels, torch.arange(DIGITS) % 10)


def test_a_scene_is_a_whole_digit_among_quarters_of_others(clutter, known):
    scene = clutter.scattered(known, 7, torch.Generator().manual_seed(5))
    assert scene.pictures.shape == (7, 1, 48, 48)
    patches = scene.pictures[:, 0].unfold(1, 8, 8).unfold(2, 8, 8)
    for one, covered, name in zip(patches, scene.covered, scene.names, strict=True):
        (digit,) = one[covered]
        assert len(digit.unique()) == 1
        assert (round(float(digit[0, 0]) * DIGITS) - 1) % 10 == int(name)
        others = one[~covered].flatten(1)
        shown = others[others.amax(1) > 0]
        assert len(shown) == clutter.PIECES
        quarters = shown.reshape(-1, 2, 4, 2, 4).transpose(2, 3).reshape(-1, 4, 16)
        assert bool((quarters == quarters[..., :1]).all())


def test_the_share_on_the_digit_is_that_of_the_weights(clutter, known):
    torch.manual_seed(0)
    model = clutter.transformer().eval()
    scene = clutter.scattered(known, 3, torch.Generator().manual_seed(5))
    seen, logits = clutter.looked(model, scene)
    assert logits.shape == (3, 10)
    found = clutter.shares(seen, scene)
    name, layer = list(seen.items())[2]
    row = layer.weights[:, :, 0].mean(1)[:, 1:]
    on = torch.stack(
        [one[covered.flatten()].sum() for one, covered in zip(row, scene.covered, strict=True)]
    )
    assert found[name] == pytest.approx((on / row.sum(1)).tolist(), abs=1e-6)
    reached = gh.rollout(seen, rows=[0])[:, 0, 1:]
    on = torch.stack(
        [one[covered.flatten()].sum() for one, covered in zip(reached, scene.covered, strict=True)]
    )
    assert found["rollout"] == pytest.approx((on / reached.sum(1)).tolist(), abs=1e-6)


@pytest.mark.slow
def test_a_few_steps_learn_tell_and_draw(clutter, known, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(clutter, "digits", lambda: (known, known))
    file = tmp_path / "new" / "digits.png"
    assert clutter.main([str(file)], steps=3) == 0
    told = capsys.readouterr().out
    assert "of 100 unseen digits are named right; by chance it were 10%" in told
    assert "has 2.8% on the digit, 1 of 36 patches" in told
    assert file.read_bytes()[:4] == b"\x89PNG"


def test_real_digits_are_divided_once(clutter):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    known, unseen = clutter.digits()
    assert (len(known.names), len(unseen.names)) == (1497, 300)
    assert float(known.pixels.max()) == 1.0
    assert sorted(set(unseen.names.tolist())) == list(range(10))


def test_without_scikit_learn_it_says_how_to_get_it(clutter, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert clutter.main([str(tmp_path / "digits.png")]) == 2
    told = capsys.readouterr().err
    assert told == ("digits_in_clutter: error: it takes scikit-learn: pip install scikit-learn.\n")


@pytest.mark.parametrize("arguments", [["3"], ["a.png", "x"], ["a.png", "1", "2"]])
def test_arguments_that_it_does_not_take(clutter, arguments, capsys):
    assert clutter.main(arguments) == 2
    assert "expected a file that ends in .png" in capsys.readouterr().err
