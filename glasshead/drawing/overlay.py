"""Weights of the patches of a picture, painted over it: as PNG, as HTML, and in a terminal."""

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from glasshead.drawing.block import ENGLISH, Block, Canvas, Words, check_caption
from glasshead.drawing.heat_map import HeatMap, matrix_of
from glasshead.drawing.numbers import number
from glasshead.drawing.page import LEVELS, level, paint, ramp, rendered

if TYPE_CHECKING:
    import numpy as np

# In pixels: the longer side is at least so long, so that small pictures can be seen.
_LEAST = 320
# What is left of a picture's light where there is no weight, and of the paint where all is.
_DIMMED, _PAINTED = 0.45, 0.8


@dataclass(frozen=True)
class Overlay(Block):
    """A grid of weights over a picture: the brighter a patch, the more weight it has.

    The picture is dimmed, and each patch is painted over as far as its weight goes. In a terminal
    the weights are a `HeatMap`, in percent.

    Args:
        values: Weights, at least 0, `[rows, columns]`, as of a `HeatMap`.
        picture: The picture that the grid divides evenly: a PIL image, an array or a tensor,
            `[H, W]`, `[H, W, 3]` or `[3, H, W]`, of bytes, of numbers from 0 to 1, or of others,
            such as the normalized ones that a model takes, which are scaled to these. None: the
            weights alone.
        caption: The caption.
        top: The weight that is painted brightest; None takes the largest.

    Raises:
        TypeError: values or picture are not numbers.
        ValueError: the weights are no matrix, or the picture has another shape.

    Example:
        >>> overlay = Overlay([[0.25, 0.75]], [[0, 255], [255, 0]], caption="One layer")
        >>> print(overlay.as_text())
        One layer, %
               0      1
        0  25.00  75.00
        >>> overlay.pixels().shape, overlay.png()[1:4]
        ((320, 320, 3), b'PNG')
    """

    values: Any
    picture: Any = None
    _: KW_ONLY
    caption: str | None = None
    top: float | None = None

    def __post_init__(self) -> None:
        check_caption(self.caption, "Overlay")
        grid = self._map
        if self.picture is not None:
            object.__setattr__(self, "picture", _colors(self.picture))
        object.__setattr__(self, "values", grid.values)

    @property
    def _map(self) -> HeatMap:
        weights = matrix_of(self.values)
        names = (list(map(str, range(count))) for count in (len(weights), len(weights[0])))
        return HeatMap(weights, *names, caption=self.caption, top=self.top)

    def pixels(self) -> "np.ndarray":
        """Return the painted picture, `[H, W, 3]` bytes."""
        import numpy as np

        grid = self._map.grid
        top = self.top or grid.largest
        levels = np.array([[level(value or 0.0, top) for value in row] for row in grid.values])
        painted = np.array([paint(place, dark=True) for place in range(LEVELS + 1)], float)
        height, width = levels.shape if self.picture is None else self.picture.shape[:2]
        factor = -(-_LEAST // max(height, width))
        rows = np.arange(height * factor) * levels.shape[0] // (height * factor)
        columns = np.arange(width * factor) * levels.shape[1] // (width * factor)
        cells = levels[rows][:, columns]
        if self.picture is None:
            return painted[cells].astype(np.uint8)
        share = (_PAINTED * cells / LEVELS)[..., None]
        below = _DIMMED * self.picture.repeat(factor, 0).repeat(factor, 1)
        return ((1 - share) * below + share * painted[cells]).round().astype(np.uint8)

    def png(self) -> bytes:
        """Return the painted picture as a PNG file (ISO/IEC 15948)."""
        return _png(self.pixels())

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the weights alone, in percent, as a heat map."""
        grid = self._map
        percent = [[100 * (value or 0.0) for value in row] for row in grid.values]
        caption = ", ".join([*([self.caption] if self.caption else []), "%"])
        top = None if self.top is None else 100 * self.top
        return HeatMap(percent, grid.rows, grid.columns, caption=caption, top=top).lines(canvas)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the painted picture as an image that the page holds, with its scale."""
        high = number(self.top or self._map.grid.largest, 3)
        return rendered(
            "overlay.html",
            source=f"data:image/png;base64,{b64encode(self.png()).decode()}",
            caption=self.caption,
            words=words,
            high=high,
            ramp=ramp(dark=True),
        )


def _colors(picture: Any) -> "np.ndarray":
    """Return a picture as `[H, W, 3]` numbers from 0 to 255."""
    import numpy as np

    values = _numbers(picture)
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[-1] not in (1, 3):
        values = np.moveaxis(values, 0, -1)
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim != 3 or values.shape[-1] not in (1, 3) or 0 in values.shape:
        raise ValueError(
            "Overlay picture must have the shape [H, W], [H, W, 3] or [3, H, W], got "
            f"{list(np.shape(picture))}. Pass one picture."
        )
    colors = np.broadcast_to(values, (*values.shape[:2], 3)).astype(float)
    if values.dtype == np.uint8:
        return colors
    finite = np.isfinite(colors)
    if not finite.all():
        raise ValueError(
            f"Overlay picture must have finite numbers, got {colors[~finite][0]}. Replace NaN and "
            "infinity."
        )
    low, high = min(0.0, float(colors.min())), max(1.0, float(colors.max()))
    if values.dtype.kind in "iu" and high <= 255 and low >= 0:
        high = 255.0
    return (colors - low) * (255 / (high - low))


def _numbers(picture: Any) -> "np.ndarray":
    """Return the numbers of an image, an array, a tensor or lists."""
    import numpy as np

    if hasattr(picture, "convert"):
        picture = picture.convert("RGB")
    if hasattr(picture, "detach"):
        picture = picture.detach().float().cpu() if picture.is_floating_point() else picture.cpu()
    try:
        values = np.asarray(picture)
    except ValueError:
        raise ValueError(
            "Overlay picture must have rows of one length, got ragged ones. Fill up the shorter."
        ) from None
    if values.dtype.kind not in "biuf":
        raise TypeError(
            f"Overlay picture must be numbers, got {type(picture).__name__}. Pass an image, an "
            "array or a tensor."
        )
    return values


def _png(pixels: "np.ndarray") -> bytes:
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, content: bytes) -> bytes:
        summed = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + summed

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks)
