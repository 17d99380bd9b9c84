"""The view `picture`: where the heads of a vision model look in a picture."""

import hashlib
import io
import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import torch
from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.message import _
from glasshead.studio.background_jobs import Cache, Forgotten, Refusal, TooMuch, Work
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import TEXT_NAME, Place
from glasshead.studio.studio import Studio
from glasshead.studio.subject import check_place
from glasshead.watching import UnseenError
from glasshead.watching.attention_map import AttentionMap, ImageTokens

if TYPE_CHECKING:
    from PIL.Image import Image

    from glasshead.studio.routes import Routes


WORDS = {
    "picture.title": _("Picture"),
    "picture.what": _("This page shows which parts of a picture a vision model attends to."),
    "picture.none": _(
        "No vision model loaded. Start the studio with the folder of a vision model, such as "
        "ViT or DINOv2."
    ),
    "picture.file": _("Choose a picture (it stays on this machine)"),
    "picture.large": _(
        "A picture must have at most {most} bytes, got {size}. Choose a smaller one."
    ),
    "picture.query": _("Query (rows and columns count from 0)"),
    "picture.patch": _("Patch at row {row}, column {column}"),
    "picture.kind.class": _("class token"),
    "picture.kind.registers": _("registers"),
    "picture.kind.patches": _("patches"),
    "picture.canvas": _(
        "The picture; click a patch, or move with the arrow keys, to see what it looks at"
    ),
    "picture.rollout": _("Rollout over all layers"),
    "picture.all": _("All heads, one row per layer"),
    "picture.sums": _("Weight by kind of token"),
    "picture.about": _(
        "Rollout combines the weights of all layers to estimate how much each patch reaches the "
        "query. The colors of each small picture end at its own largest weight. A class token "
        "stands for the whole picture and has no place in it."
    ),
    "picture.table": _("Weight of each patch"),
}


_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
# Pixels of a picture that is opened; of a file of few bytes there may be many more.
_MOST_PIXELS = 2**25
# Pictures, passes and maps that are remembered.
_KEPT = 8
_EXAMPLE_SIDE = 448


@dataclass(frozen=True, eq=False)
class PicturePass:
    """One pass over a picture.

    Attributes:
        pixels: The picture as the model was given it, numbers from 0 to 1.
        seen: The layers whose keys are its patches, each with one call.
        tokens: Which keys are patches.
        keys: Number of keys.
        heads: Number of heads of each layer.
    """

    pixels: Float[Tensor, "height width 3"]
    seen: gh.Seen
    tokens: ImageTokens
    keys: int
    heads: tuple[int, ...]


class Pictures:
    """Pictures that were sent to a studio, and what its model's heads look at in them.

    Args:
        studio: The studio that holds the model.
    """

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._pictures: Cache[Image] = Cache(_KEPT)
        self._passes: Cache[PicturePass] = Cache(_KEPT // 4)
        self._maps: Cache[list[AttentionMap]] = Cache(_KEPT)

    def add(self, content: bytes) -> str:
        """Open a picture and return its name, the first digits of the SHA-256 of its file.

        Errors: a `Refusal` if it is none that can be opened, or too large.
        """
        most = self._studio.limits.text
        if len(content) > most:
            raise TooMuch(
                "A picture must have at most {most:,} bytes, got {count:,}. Choose a smaller one.",
                most=most,
                count=len(content),
            )
        name = hashlib.sha256(content).hexdigest()[:16]
        self._pictures.put(name, opened(content))
        return name

    def summary(self, image: str | None, work: Work) -> dict[str, Any]:
        """Describe a pass over a picture.

        Args:
            image: The name of a picture that was sent; None: one that is drawn for the studio.
            work: Checked for cancellation before the model runs.

        Returns: `layers`, and `heads` of each; `grid`, the rows and columns of patches; `first`,
            the number of the token of the first patch; `others`, the numbers of other tokens by
            what they are; `keys`, the number of tokens.

        Errors: a `Refusal` if there is no such picture, or the model's patches are not known.
        """
        seen = self._pass(image, work)
        return {
            "layers": list(seen.seen),
            "heads": list(seen.heads),
            "grid": list(seen.tokens.grid),
            "first": int(seen.tokens.places[0, 0]),
            "others": {name: keys for name, keys in seen.tokens.named(seen.keys).items() if keys},
            "keys": seen.keys,
        }

    def pixels(self, image: str | None, work: Work) -> Float[Tensor, "height width 3"]:
        """Return the picture as the model was given it."""
        return self._pass(image, work).pixels

    def maps(
        self, image: str | None, query: int, work: Work
    ) -> Float[Tensor, "all_heads_and_one rows columns"]:
        """Return the weight of each patch for a query, in each head; last is the rollout's.

        Errors: as of `summary`, and a `Refusal` if there is no such query.
        """
        return torch.stack([each.weights.float() for each in self._all(image, query, work)])

    def sums(self, image: str | None, query: int, work: Work) -> dict[str, list[float]]:
        """Return the sums of the weights of all patches and of other tokens, in each of `maps`."""
        maps = self._all(image, query, work)
        patches = {"patches": [each.share for each in maps]}
        return patches | {
            name: [each.elsewhere[name] for each in maps] for name in maps[0].elsewhere
        }

    def _all(self, image: str | None, query: int, work: Work) -> list[AttentionMap]:
        one = self._pass(image, work)
        check_place("query", query, one.keys)
        key = self._studio.subject.version, image, query
        return self._maps.get(key, lambda: _maps(one, query), work.follow, work)

    def _pass(self, image: str | None, work: Work) -> PicturePass:
        picture = example() if image is None else self._pictures.find(image)
        if picture is None:
            raise Forgotten("this picture is no longer here. Choose it again.")
        key = self._studio.subject.version, image
        return self._passes.get(key, lambda: self._run(picture, work), work.follow, work)

    def _run(self, picture: "Image", work: Work) -> PicturePass:
        reader = self._studio.subject.pictures()
        pixels = reader.prepare(picture)
        work.check()
        try:
            with (
                torch.inference_mode(),
                gh.watch(reader.model, keep="weights", budget=self._studio.limits.memory) as seen,
            ):
                reader.read(pixels)
        except UnseenError as error:
            raise Refusal.of(error) from error
        found = {
            name: watched
            for name, watched in seen.items()
            if len(watched) == 1
            and watched[0].queries == watched[0].keys
            and not isinstance(watched[0].images, str | None)
            and watched[0].images[0][0].windows == 1
        }
        if not found:
            raise Refusal(
                "the patches of a picture are not known in this model's attention. Watch it in "
                "Python, with gh.watch(model, keep='weights')."
            )
        calls = [watched[0] for watched in found.values()]
        (tokens,) = calls[0].images[0]  # type: ignore[index, misc] - checked above
        heads = tuple(call.shape[-2] for call in calls)
        return PicturePass(reader.shown(pixels), gh.Seen(found), tokens, calls[0].keys, heads)


def _maps(one: PicturePass, query: int) -> list[AttentionMap]:
    """Return the map of each head of each layer, and of the rollout, as the library makes them."""
    maps = [
        layer.image(query, heads=[head])
        for layer, count in zip(one.seen.values(), one.heads, strict=True)
        for head in range(count)
    ]
    last = list(one.seen.values())[-1]
    return [*maps, last.on_image(gh.rollout(one.seen, rows=[query])[0, 0])]


def opened(content: bytes) -> "Image":
    """Open the file of a picture, upright and in RGB.

    Errors: a `Refusal` if it is none that can be opened, or has too many pixels.
    """
    if find_spec("PIL") is None:
        raise Refusal("Pictures need Pillow, which is not installed. Run pip install pillow.")
    from PIL import Image, ImageOps

    try:
        picture = Image.open(io.BytesIO(content), formats=_FORMATS)
        pixels = picture.width * picture.height
        if pixels <= _MOST_PIXELS:
            return ImageOps.exif_transpose(picture).convert("RGB")
    # What Pillow raises of a broken file is of many kinds.
    except Exception as error:
        raise Refusal(
            "This file must be a picture that can be opened. Choose one in the format PNG, JPEG, "
            "WebP, GIF or BMP."
        ) from error
    raise TooMuch(
        "A picture must have at most {most:,} pixels, got {count:,}. Choose a smaller one.",
        most=_MOST_PIXELS,
        count=pixels,
    )


def example() -> "Image":
    """Draw a picture to begin with: a red ball and a house in a meadow, under the sun.

    >>> example().size
    (448, 448)
    """
    from PIL import Image, ImageDraw

    side = _EXAMPLE_SIDE
    picture = Image.new("RGB", (side, side))
    draw = ImageDraw.Draw(picture)
    for row in range(side):
        part = row / side
        draw.line((0, row, side, row), (int(90 + 130 * part), int(160 + 70 * part), 245))
    draw.ellipse((310, 40, 400, 130), (255, 214, 70))
    hill = [(x, 285 + 26 * math.sin(x / 71)) for x in range(side + 1)]
    draw.polygon([(0, side), *hill, (side, side)], (92, 158, 78))
    draw.rectangle((60, 205, 175, 315), (226, 205, 170))
    draw.polygon([(45, 205), (117, 135), (190, 205)], (150, 70, 58))
    draw.rectangle((102, 255, 136, 315), (96, 66, 48))
    draw.rectangle((72, 222, 95, 246), (120, 170, 215))
    draw.rectangle((142, 222, 165, 246), (120, 170, 215))
    draw.ellipse((270, 310, 356, 396), (206, 44, 44))
    draw.ellipse((288, 324, 312, 346), (240, 150, 150))
    return picture


_Image = Annotated[
    str | None,
    TEXT_NAME
    | {
        "description": "The name of a picture, as it was given when it was sent; without one, an "
        "example."
    },
]


def _add_routes(routes: "Routes") -> None:
    pictures = Pictures(routes.studio)

    @routes.json(method="POST")
    def add(content: bytes) -> dict[str, str]:
        """Store the picture of a file and return its name.

        400 if it is none that can be opened, 413 if it is too large.
        """
        return {"id": pictures.add(content)}

    @routes.json()
    def summary(work: Work, image: _Image = None) -> dict[str, Any]:
        """Return the layers, heads and patches of a picture; 404 if there is no vision model."""
        return pictures.summary(image, work)

    @routes.numbers("/pixels")
    def pixels(work: Work, image: _Image = None) -> Tensor:
        """Return the picture as the model is given it, [height, width, 3], from 0 to 1."""
        return pictures.pixels(image, work)

    @routes.numbers("/maps")
    def maps(work: Work, query: Place, image: _Image = None) -> Tensor:
        """Return the weights of the patches in each head and, last, in the rollout.

        400 if there is no such query.
        """
        return pictures.maps(image, query, work)

    @routes.json("/sums")
    def sums(work: Work, query: Place, image: _Image = None) -> dict[str, list[float]]:
        """Return the sums of the weights of all patches and of other tokens, as of the maps."""
        return pictures.sums(image, query, work)


PANEL = Panel(words=WORDS, routes=_add_routes)
