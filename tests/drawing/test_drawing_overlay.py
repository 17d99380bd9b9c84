"""Weights over a picture: the pixels, the file, and what is no picture."""

import io

import numpy as np
import pytest
import torch

from glasshead.drawing import Overlay
from glasshead.drawing.page import LEVELS, paint

PICTURE = np.arange(7 * 11 * 3, dtype=np.uint8).reshape(7, 11, 3)


def test_a_patch_without_weight_is_dimmed_and_the_largest_is_painted():
    pixels = Overlay([[0.0, 0.5]], np.full((200, 400), 100, np.uint8)).pixels()
    assert pixels.shape == (200, 400, 3)
    assert (pixels[:, :200] == 45).all()
    bright = np.array(paint(LEVELS, dark=True))
    assert (pixels[:, 200:] == (0.2 * 45 + 0.8 * bright).round()).all()


def test_the_grid_divides_the_picture_evenly():
    weights = torch.rand(3, 5).softmax(-1)
    alone = Overlay(weights).pixels()
    assert alone.shape[0] * 5 == alone.shape[1] * 3
    side = alone.shape[0] // 3
    cells = alone.reshape(3, side, 5, side, 3)
    assert (cells == cells[:, :1, :, :1]).all()
    order = cells[:, 0, :, 0].sum(-1).flatten().argsort(kind="stable")
    assert (weights.flatten()[order].diff() > -1 / LEVELS).all()


@pytest.mark.parametrize(
    "given",
    [
        PICTURE / 255,
        torch.from_numpy(PICTURE),
        torch.from_numpy(PICTURE).permute(2, 0, 1),
        PICTURE.astype(np.int64),
    ],
)
def test_the_same_picture_in_another_form_is_drawn_alike(given):
    expected = Overlay([[0.2, 0.8]], PICTURE).pixels().astype(int)
    assert abs(Overlay([[0.2, 0.8]], given).pixels().astype(int) - expected).max() <= 1


def test_normalized_numbers_are_scaled_and_grey_is_grey():
    normalized = torch.tensor([[-2.0, 3.0]])
    dark, light = Overlay([[0.0]], normalized).pixels()[0, [0, -1]]
    assert (dark == 0).all()
    assert (light == round(0.45 * 255)).all()


def test_a_file_holds_the_pixels():
    image = pytest.importorskip("PIL.Image")
    overlay = Overlay([[0.2, 0.8]], PICTURE)
    opened = image.open(io.BytesIO(overlay.png()))
    assert (np.asarray(opened) == overlay.pixels()).all()
    assert (Overlay([[0.2, 0.8]], image.fromarray(PICTURE)).pixels() == overlay.pixels()).all()


def test_a_page_holds_the_picture_and_its_scale():
    page = Overlay([[0.25, 0.75]], caption="a < b").html()
    assert 'src="data:image/png;base64,' in page
    assert "a &lt; b" in page
    assert "Colors from 0 to 0.75" in page


@pytest.mark.parametrize(
    ("picture", "error", "told"),
    [
        (np.zeros((2, 3, 4, 3)), ValueError, r"shape \[H, W\], \[H, W, 3\] or \[3, H, W\], got"),
        (np.zeros((0, 3)), ValueError, "got \\[0, 3\\]"),
        (np.array([["a"]]), TypeError, "must be numbers, got ndarray"),
        (np.array([[np.nan]]), ValueError, "finite numbers, got nan"),
        ([[1], [1, 2]], ValueError, "rows of one length, got ragged ones"),
    ],
)
def test_what_is_no_picture_is_refused(picture, error, told):
    with pytest.raises(error, match=told):
        Overlay([[1.0]], picture)


@pytest.mark.parametrize(
    ("weights", "error", "told"),
    [
        (3, TypeError, "must be a matrix, got int. Pass a list of rows"),
        ([0.25, 0.75], TypeError, "row"),
        ([], ValueError, "at least one row and one column"),
        ([[0.25], [0.5, 0.25]], ValueError, "rows of one length"),
        ([[-0.25]], ValueError, "at least 0, got -0.25"),
    ],
)
def test_what_are_no_weights_is_refused(weights, error, told):
    with pytest.raises(error, match=told):
        Overlay(weights)
