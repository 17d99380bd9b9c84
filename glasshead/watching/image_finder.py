"""Find the patches of a picture among the keys of a call, by what its model was given."""

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.watching.attention_map import Images, ImageTokens
from glasshead.watching.captured_call import AttentionCall, CapturedCall
from glasshead.watching.foreign import attribute
from glasshead.watching.module_calls import ModuleCall, may_be_given

# Parameters that are tokens before the patches, in the order that models put them there.
_BEFORE = {
    "class": ("cls_token", "class_embedding", "class_token"),
    "distillation": ("distillation_token", "dist_token"),
    "registers": ("register_tokens", "reg_token"),
}
# Parameters that are tokens after the patches.
_AFTER = {"detection": ("detection_tokens",)}
# Of a feature map, how many pixels a cell is wide.
_STRIDES = (2, 4, 8, 16, 32, 64)
# Pictures that may wait for a text.
_MOST = 1024


# What shows a picture, or a text that may have some, by the name of an argument.
_SHOWING = frozenset({"grid_thw", "input_dimensions", "input_ids", "pixel_values"})


def takes_pictures(modules: Iterable[nn.Module]) -> bool:
    """Return whether a module of a model may be given a picture, or a text that has some."""
    return any(
        attribute(one, "patch_embed") is not None or may_be_given(one, _SHOWING) for one in modules
    )


class ImageFinder:
    """Finder of the pictures among the keys of each call, once for all layers of a pass.

    Args:
        modules: The modules of the model.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        # Modules that take pictures under any name.
        self._embedding = {one for one in modules if attribute(one, "patch_embed") is not None}
        self._given: object = None
        self._found: dict[int, Images | str | None] = {}
        # The pictures that vision towers have read and no text yet, by the calls of the towers.
        self._read: deque[tuple[object, list[tuple[int, int]]]] = deque(maxlen=_MOST)

    def note(self, calls: Sequence[ModuleCall]) -> None:
        """Note the grids of the pictures that a vision tower reads, for the text that they go into.

        Args:
            calls: The module calls in progress, innermost first.
        """
        # Modules may name other things as these are named; they are watched all the same.
        with suppress(Exception):
            self._note(calls)

    def _note(self, calls: Sequence[ModuleCall]) -> None:
        for call in calls:
            given = call.arguments
            sizes, pixels = given.get("grid_thw"), self._pixels(call)
            if isinstance(given.get("input_ids"), Tensor):
                return
            if not isinstance(sizes, Tensor) and pixels is None:
                continue
            if not self._read or self._read[-1][0] is not call.identity:
                self._read.append((call.identity, _grids(call.module, sizes, pixels)))
            return

    def images(self, call: AttentionCall) -> Images | str | None:
        """Return the pictures of each row of the batch of a call.

        Args:
            call: The call.

        Returns: None if the model was given no picture, a clause where its patches are not
        known.
        """
        try:
            return self._images(call.captured, call.calls)
        except Exception as error:  # noqa: BLE001 - as of other things of these names
            return f"what its model was given is not understood ({error})"

    def _images(self, captured: CapturedCall, calls: Sequence[ModuleCall]) -> Images | str | None:
        keys, rows = captured.problem.scores_shape[-1], captured.rows
        decodes = False
        for call in calls:
            given = call.arguments
            if "input_dimensions" in given and attribute(call.module, "shift_size") is not None:
                return _windows(call.module, given["input_dimensions"], keys, rows)
            if isinstance(given.get("grid_thw"), Tensor):
                return _packed(call.module, given["grid_thw"], keys)
            text, pixels = given.get("input_ids"), self._pixels(call)
            if isinstance(text, Tensor) or pixels is not None:
                if decodes and not captured.crossing:
                    return "its keys are those of a decoder"
                if text is None and pixels is not None and len(pixels) != rows:
                    return f"its {rows} rows are not the {len(pixels)} pictures, as within windows"
                return self._once(call, text, pixels, keys)
            decodes |= isinstance(given.get("encoder_hidden_states"), Tensor)
        return None

    def _once(
        self, call: ModuleCall, text: Any, pixels: Tensor | None, keys: int
    ) -> Images | str | None:
        """Return the pictures that a model was given, found before for other layers of the pass."""
        if call.identity is not self._given:
            self._given, self._found = call.identity, {}
        if keys not in self._found:
            if isinstance(text, Tensor):
                self._found[keys] = self._in_text(call.module, text, keys)
            elif pixels is not None:
                self._found[keys] = _patches(call.module, pixels, keys)
        return self._found[keys]

    def _in_text(self, module: nn.Module, text: Tensor, keys: int) -> Images | str | None:
        """Return the pictures within the texts of a language model."""
        wanted = attribute(attribute(module, "config"), "image_token_id")
        if wanted is None or text.shape[-1] != keys:
            return None
        counts = (text == wanted).sum(-1).tolist()
        if not sum(counts):
            return None
        grids = [grid for _, read in self._read for grid in read]
        self._read.clear()
        if sum(map(prod, grids)) != sum(counts):
            return (
                f"its {sum(counts)} image tokens are not the {sum(map(prod, grids))} of the "
                f"pictures that a vision tower was seen to read"
            )
        images, waiting = [], iter(grids)
        for row, count in zip(text, counts, strict=True):
            places, own, left = (row == wanted).nonzero()[:, 0].cpu(), [], count
            while left > 0:
                grid = next(waiting)
                left -= prod(grid)
                if left < 0:
                    return "a picture of it is divided between two texts"
                own.append(ImageTokens(places[: prod(grid)].reshape(grid), rest="text"))
                places = places[prod(grid) :]
            images.append(own)
        return images

    def _pixels(self, call: ModuleCall) -> Tensor | None:
        """Return the picture that a module was given."""
        pixels = call.arguments.get("pixel_values")
        if pixels is None and call.module in self._embedding:
            pixels = next((one for one in call.arguments.values() if _is_picture(one)), None)
        return pixels if isinstance(pixels, Tensor) else None


def _grids(module: nn.Module, sizes: Tensor | None, pixels: Tensor | None) -> list[tuple[int, int]]:
    """Return the grid of each picture that a vision tower reads, as it goes into a text."""
    if isinstance(sizes, Tensor):
        merged = int(attribute(module, "spatial_merge_size", 1))
        return [
            (int(height) // merged, int(width) // merged)
            for frames, height, width in sizes
            for _ in range(int(frames))
        ]
    grid = None if pixels is None else _patch_grid(module, pixels)
    return [] if grid is None or pixels is None else [grid] * len(pixels)


def _is_picture(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 4 and value.is_floating_point()


def _sides(size: Any) -> tuple[int, int]:
    """Return height and width of what may be one number for both."""
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(height), int(width)


def _patch_grid(module: nn.Module, pixels: Tensor) -> tuple[int, int] | None:
    """Return the grid of patches; None if the model has no patches of one size."""
    known = (*module.modules(), attribute(module, "config"))
    sizes = (attribute(one, "patch_size") for one in known)
    size = next((one for one in sizes if one is not None), None)
    if size is None or pixels.ndim != 4:
        return None
    height, width = _sides(size)
    return pixels.shape[-2] // height, pixels.shape[-1] // width


def _patches(module: nn.Module, pixels: Tensor, keys: int) -> Images | str:
    """Return the patches of a vision transformer, or the cells of a feature map."""
    grid = _patch_grid(module, pixels)
    if grid is None:
        return _feature_map(pixels, keys)
    before, after = _tokens(module, _BEFORE), _tokens(module, _AFTER)
    first = sum(before.values())
    if prod(grid) + first + sum(after.values()) != keys:
        return f"its {keys} keys are not {grid[0]} × {grid[1]} patches and {first} tokens before"
    others, at = {}, 0
    for name, count in before.items():
        others[name], at = range(at, at + count), at + count
    at += prod(grid)
    for name, count in after.items():
        others[name], at = range(at, at + count), at + count
    return [[ImageTokens.raster(grid, first, others)]]


def _tokens(module: nn.Module, kinds: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """Return how many tokens a model has of each kind, by its parameters."""
    shapes = {name.rpartition(".")[2]: one.shape for name, one in module.named_parameters()}
    found = {}
    for kind, names in kinds.items():
        shape = next((shapes[name] for name in names if name in shapes), None)
        if shape is not None:
            found[kind] = shape[-2] if len(shape) > 1 else 1
    return {kind: count for kind, count in found.items() if count}


def _feature_map(pixels: Tensor, keys: int) -> Images | str:
    """Return the cells of a feature map, whose stride follows from how many they are."""
    if pixels.ndim == 4:
        for stride in _STRIDES:
            grid = -(-pixels.shape[-2] // stride), -(-pixels.shape[-1] // stride)
            if prod(grid) == keys:
                return [[ImageTokens.raster(grid)]]
    return f"its {keys} keys are not a feature map of a picture of {list(pixels.shape[-2:])} pixels"


def _windows(module: nn.Module, dimensions: Any, keys: int, rows: int) -> Images | str:
    """Return the patches of attention by shifted windows (Liu et al. 2021, Swin, section 3.2)."""
    height, width = _sides(dimensions)
    (size, across), (shift, _) = _sides(module.window_size), _sides(module.shift_size)
    if size != across or size * size != keys:
        return f"its {keys} keys are not a window of {size} × {across} patches"
    high, wide = -(-height // size), -(-width // size)
    if rows % (high * wide):
        return f"its {rows} rows are not pictures of {high * wide} windows"
    row = (torch.arange(height) - shift)[:, None] % (high * size)
    column = (torch.arange(width) - shift) % (wide * size)
    window = row // size * wide + column // size
    places = window * keys + row % size * size + column % size
    return [[ImageTokens(places, rest="padding", windows=high * wide)]]


def _packed(module: nn.Module, sizes: Tensor, keys: int) -> Images | str:
    """Return the patches of a vision tower that reads them in blocks that are merged later.

    Where some of its layers attend within windows, all layers read the blocks window by window.
    """
    if len(sizes) != 1:
        return f"it reads {len(sizes)} pictures at once, one after the other"
    frames, height, width = map(int, sizes[0])
    window, size = _of(module, "window_size"), _of(module, "patch_size")
    if frames != 1 or height * width != keys:
        if window:
            return f"its {keys} keys are one window of the {height} × {width} patches of a picture"
        return f"its {keys} keys are not the {frames} × {height} × {width} patches of one picture"
    merged = int(attribute(module, "spatial_merge_size", 1))
    rows, columns = height // merged, width // merged
    order = torch.arange(rows * columns)
    if window:
        side = int(window) // merged // int(size)
        row, column = order // columns, order % columns
        across = -(-columns // side)
        # A stable sort leaves the blocks of a window in their order.
        order = (row // side * across + column // side).argsort(stable=True)
    blocks = torch.empty(rows * columns, merged * merged, dtype=torch.long)
    blocks[order] = torch.arange(keys).reshape(blocks.shape)
    places = blocks.reshape(rows, columns, merged, merged).transpose(1, 2)
    return [[ImageTokens(places.reshape(height, width))]]


def _of(module: nn.Module, name: str) -> Any:
    """Return a number of a module, or else of its config; None if neither has it."""
    own = attribute(module, name)
    return attribute(attribute(module, "config"), name) if own is None else own
