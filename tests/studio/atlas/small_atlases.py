"""Matrices whose atlas has several levels, and what each of its tiles is by definition."""

import torch

QUERIES, KEYS, HEADS = 521, 773, 4
LEVELS = 3


def inputs(queries=QUERIES, keys=KEYS, dtype=torch.float64):
    query = torch.randn(2, HEADS, queries, 5, dtype=dtype)
    return query, torch.randn(2, HEADS // 2, keys, 5, dtype=dtype)


def of_blocks(P, level):
    """Sums over blocks of keys and means over blocks of queries, one after the other."""
    block = 2**level
    summed = torch.stack([keys.sum(-1) for keys in P.double().split(block, -1)], -1)
    return torch.stack([rows.mean(-2) for rows in summed.split(block, -2)], -2)


def check(atlas, P, tolerance=1e-6):
    """Every tile of every level, against the whole matrix."""
    for level in range(atlas.levels):
        expected = of_blocks(P, level)
        assert atlas.blocks(level) == expected.shape
        rows, columns = atlas.size(level)
        tiles = [[atlas.tile(level, r, c) for c in range(columns)] for r in range(rows)]
        assert all(tile.dtype == torch.float32 for row in tiles for tile in row)
        assert all(max(tile.shape) <= 256 for row in tiles for tile in row)
        found = torch.cat([torch.cat(row, 1) for row in tiles])
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    assert rows == columns == 1


def cut(monkeypatch, numbers, height):
    """Goes through so small parts, and keeps few numbers, as of a long text."""
    monkeypatch.setattr("glasshead.studio.atlas._NUMBERS", numbers)
    monkeypatch.setattr("glasshead.studio.atlas._HEIGHT", height)
    monkeypatch.setattr("glasshead.studio.atlas._BAND", 2 * height)
    monkeypatch.setattr("glasshead.studio.atlas._KEPT", 2**17)
