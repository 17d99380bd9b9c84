"""What the tests of the view `heads` share: texts that are read, and colours by hand."""

import math

from glasshead.drawing.page import LEVELS, hexadecimal, paint

LAYERS, HEADS = 2, 3
STORY = "Once upon a time Tom saw a big red ball and a dog."
# So short that all of its cells can be walked through.
TEXT = "a big red dog"
OPEN = "&layer=1&head=2&query=5&key=3"
# The field of the text that is shown; another one is for that which it is compared with.
FIELD = ".text:not(.compare) textarea"
# The colours of a canvas at some places, as hexadecimal.
COLORS = """(canvas, places) => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height)
    .getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const fine = canvas.width / canvas.clientWidth;
  return places.map(([x, y]) => {
    const [r, g, b, a] = copy.getImageData(Math.floor(x * fine), Math.floor(y * fine), 1, 1).data;
    return a ? "#" + [r, g, b].map((part) => part.toString(16).padStart(2, "0")).join("") : null;
  });
}"""


def colors(values, *, logarithmic=False, skip=0):
    """The colour of each cell, by hand; None of what is hidden."""
    top = values[:, skip:].max().item()
    return [
        [
            None
            if math.copysign(1, weight) < 0
            else hexadecimal(paint(place_of(weight, top, logarithmic)))
            for weight in row[skip:]
        ]
        for row in values.tolist()
    ]


def place_of(weight, top, logarithmic):
    if not weight:
        return 0
    share = 1 - math.log(weight / top) / math.log(1e-4) if logarithmic else weight / top
    return max(0, min(LEVELS, math.floor(share * LEVELS + 0.5)))


def close(found, expected):
    """Whether colours are alike; a rounding may lead to the neighbour."""
    if found is None or expected is None:
        return found == expected
    return all(
        abs(int(found[at : at + 2], 16) - int(expected[at : at + 2], 16)) < 9 for at in (1, 3, 5)
    )


def small(page, layer, head):
    return page.locator(".all tbody tr").nth(layer).locator("button").nth(head)
