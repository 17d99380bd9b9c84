"""The studio: an atlas of 65,536 tokens, a prompt that is typed, 24 words in Steps, 12 × 12 heads.

The prompt and the map of 512 tokens are those of stories260K, where `GLASSHEAD_DATA` has it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import torch
from pairs import Figure, figure, report
from playwright.sync_api import CDPSession, Page, ViewportSize

import glasshead as gh
from tests.chromium import chromium
from tests.pretrained_folders import llama_folder

RESULTS = Path("build/benchmarks/studio.json")
TOKENS, WIDTH = 2**16, 64
SIDE = 256
WINDOW: ViewportSize = {"width": 1280, "height": 900}
# Each of 256 x 256 blocks; at level 3 a tile is of 2048 keys a side.
TILES = 40
# Take a step in each frame of the screen, and count frames. Pointers are moved by synthetic events.
COUNTED = """async ([what, seconds]) => {
  const { element, start = () => {}, step } = (%s)(what);
  const box = element.getBoundingClientRect();
  const at = (type, x, y) => element.dispatchEvent(new PointerEvent(type, { pointerId: 1,
    pointerType: "mouse", button: 0, buttons: 1, bubbles: true,
    clientX: box.left + x, clientY: box.top + y }));
  element.setPointerCapture = () => {};
  start(at, box);
  const times = [];
  await new Promise((done) => {
    const next = (now) => {
      times.push(now);
      step(times.length, at, box);
      if (now - times[0] < seconds * 1000) requestAnimationFrame(next); else done();
    };
    requestAnimationFrame(next);
  });
  at("pointerup", 0, 0);
  return (times.length - 1) / ((times[times.length - 1] - times[0]) / 1000);
}"""
# Pan by a few pixels.
PANNED = """(view) => ({
  element: document.querySelector(`${view} canvas`),
  start: (at) => at("pointerdown", 400, 200),
  step: (count, at) => at("pointermove", 400 - (count * 4) % 2400, 200 - (count * 4) % 2400),
})"""
# Move the slider of β by a stop in every second frame.
SLID = """() => {
  const element = document.querySelector(".steps .slider input");
  element.scrollIntoView({ block: "center" });
  const start = () => element.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
  const last = Number(element.max);
  const step = (count) => {
    const place = Math.floor(count / 2) % (2 * last);
    const stop = String(Math.min(place, 2 * last - place));
    if (stop === element.value) return;
    element.value = stop;
    element.dispatchEvent(new Event("input", { bubbles: true }));
  };
  return { element, start, step };
}"""
# Drag the tip of the first arrow in a circle.
ARROWED = """() => {
  const element = document.querySelector(".steps .drag svg");
  const tip = element.querySelector(".q circle").getBoundingClientRect();
  const start = (at, { left, top }) => {
    at("pointerdown", tip.left - left + tip.width / 2, tip.top - top + tip.height / 2);
  };
  const step = (count, at, { width }) => {
    const turn = count / 30;
    at("pointermove", width * (0.5 + 0.3 * Math.cos(turn)), width * (0.5 + 0.3 * Math.sin(turn)));
  };
  return { element, start, step };
}"""
# Move the cross-hair over a map, a query and two keys on.
POINTED = """() => ({
  element: document.querySelector(".heads .map canvas"),
  step: (count, at, { width, height }) => {
    at("pointermove", (count * 5) % (width - 1), (count * 3) % (height - 1));
  },
})"""
SECONDS = 4

WORDS = " ".join(f"word{place}" for place in range(24))
POINTED_TOKENS = 512

# Of which a reader types the last letters; as many tokens have the first that are read.
TYPED = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high. "
    "Lily asked her mom to help."
)
PROMPT, STROKES = 64, 60

# When the first view is drawn.
NOTED = """new MutationObserver(() => {
  if (document.querySelector(".body[data-drawn]")) window.drawn ??= performance.now();
}).observe(document, { subtree: true, attributes: true, childList: true })"""


def stored(file: Path) -> None:
    """Save weights of one causal head, as a text of many topics might have them."""
    torch.manual_seed(0)
    topics = torch.randn(97, WIDTH)[torch.arange(TOKENS) // 997 % 97]
    query, key = torch.randn(2, 1, 1, TOKENS, WIDTH).mul(0.6).add(topics * 0.9).unbind()
    gh.Attention(mask=gh.causal()).weights(query, key).save(file)


@contextmanager
def served(*shown: Path) -> Iterator[str]:
    """Yield the address of a studio that shows a file, or the worked example."""
    command = [sys.executable, "-m", "glasshead", "studio", *map(str, shown), "--no-open"]
    command += ["--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def got(url: str) -> float:
    """Return how long an answer takes, with all of it read."""
    start = time.perf_counter()
    with urllib.request.urlopen(url, timeout=300) as answer:
        answer.read()
    return time.perf_counter() - start


def tiles(url: str, level: int) -> tuple[float, float]:
    """Return the median and the 95th percentile of tiles that nobody has asked for yet."""
    last = TOKENS // SIDE // 2**level
    places = {
        (int(row), int(column * (row + 1)))
        for row, column in zip(
            torch.randint(last, (TILES,)).tolist(), torch.rand(TILES).tolist(), strict=True
        )
    }
    asked = f"{url}api/atlas/tile?layer=0&head=0&level={level}"
    times = torch.tensor([got(f"{asked}&row={row}&column={column}") for row, column in places])
    return times.median().item(), times.quantile(0.95).item()


def keystroke(url: str, text: str) -> float:
    """Return how long all requests of the page after a key take: bars, maps and the shown heads."""
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as asking:
        for answer in [
            asking.submit(got, f"{url}api/prompt{path}?{urlencode({'text': text})}")
            for path in ("", "/maps")
        ]:
            answer.result()
    shown = {"text": text, "heads": "1.3,0.1"}
    got(f"{url}api/prompt/weights?{urlencode(shown)}")
    return time.perf_counter() - start


def tokens_in(url: str, text: str) -> int:
    """Return how many tokens the model reads of a text."""
    with urllib.request.urlopen(f"{url}api/prompt?{urlencode({'text': text})}") as answer:
        return len(json.load(answer)["tokens"])


def typed(url: str) -> list[Figure]:
    """Return the median and the 95th percentile of keystrokes at the end of 64 tokens."""
    letters = next(end for end in range(1, len(TYPED)) if tokens_in(url, TYPED[:end]) >= PROMPT)
    start = TYPED[:letters]
    # Each text is one that the studio has not read before.
    texts = [
        start[: -1 - at % 9] + chr(ord("a") + at % 26) + "!" * (at // 26) for at in range(STROKES)
    ]
    times = torch.tensor([keystroke(url, text) for text in texts])
    told = f"{tokens_in(url, start)} tokens"
    late = times.quantile(0.95).item()
    return [
        figure("a keystroke in a prompt, median", times.median().item(), "s", about=told),
        figure("a keystroke in a prompt, p95", late, "s", about=told, at_most=0.1),
    ]


def first_view(page: Page, url: str) -> float:
    """Return the seconds from the start of the page until its first view is drawn."""
    page.goto("about:blank")
    page.goto(f"{url}#atlas")
    page.wait_for_selector(".body[data-drawn]")
    return page.evaluate("window.drawn") / 1000


def frame(page: Page, name: str, moved: str, what: str = "") -> Figure:
    """Return the time of a frame while a script moves something, and the page thread's share."""
    session = page.context.new_cdp_session(page)
    # Time of the processor, which other processes do not lengthen.
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = busy(session)
    frames = page.evaluate(COUNTED % moved, [what, SECONDS])
    spent = (busy(session) - before) / (frames * SECONDS)
    about = f"{frames:.1f} frames a second, {spent * 1000:.1f} ms of the page's thread"
    return figure(f"a frame while {name}", 1 / frames, "s", about=about, at_most=1 / 55)


def busy(session: CDPSession) -> float:
    """Return the seconds of processor time that the page's thread has used."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in metrics if one["name"] == "TaskDuration")


def panned(page: Page, url: str) -> list[Figure]:
    """Time the first view of an atlas, and its frames while it is panned."""
    page.add_init_script(NOTED)
    first_view(page, url)
    seconds = sorted(first_view(page, url) for _ in range(5))
    rows = [figure("first view after the page's start", seconds[2], "s", at_most=1)]
    for name, zoom in (("level 0, 16 pixels a token", 4), ("level 3", -3), ("level 6", -6)):
        page.goto("about:blank")
        page.goto(f"{url}#atlas?y=40000&x=39000&zoom={zoom}&i=40000&j=39000")
        page.wait_for_selector(".body[data-drawn]")
        rows.append(frame(page, f"panning, {name}", PANNED, ".atlas .map"))
    return rows


def dragged(page: Page, url: str) -> list[Figure]:
    """Time the frames of the view `steps` of 24 words while β or an arrow is dragged."""
    page.goto("about:blank")
    page.goto(f"{url}#steps?{urlencode({'text': WORDS})}")
    page.wait_for_selector(".body[data-drawn]")
    sliding = frame(page, "β is dragged, 24 words", SLID)
    return [sliding, arrowed(page, f"{url}#steps?{urlencode({'text': WORDS, 'way': 'drag'})}", 24)]


def arrowed(page: Page, url: str, words: int) -> Figure:
    """Time the frames of the view `steps` while the arrow of a query is dragged."""
    page.goto("about:blank")
    page.goto(url)
    page.wait_for_selector(".drag .q circle")
    return frame(page, f"an arrow is dragged, {words} keys", ARROWED)


def pointed(page: Page, url: str) -> list[Figure]:
    """Time frames over 512 tokens while a pointer moves over a map, or drags an arrow."""
    ends = range(len(TYPED), 9 * len(TYPED), 7)
    text = " ".join([TYPED] * 9)
    end = next(end for end in ends if sent(url, text[:end])[1] >= POINTED_TOKENS)
    name, tokens = sent(url, text[:end])
    page.goto("about:blank")
    page.goto(f"{url}#heads?text={name}&layer=1&head=6")
    page.wait_for_selector(".body[data-drawn]")
    moving = frame(page, f"the cross-hair moves over {tokens} tokens", POINTED)
    return [moving, arrowed(page, f"{url}#steps?text={name}&layer=1&head=6&way=drag", tokens)]


def sent(url: str, text: str) -> tuple[str, int]:
    """Return the name of a text that the model has read, and how many tokens it has."""
    body = json.dumps({"text": text}).encode()
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{url}api/texts", body, headers)
    with urllib.request.urlopen(asked) as answer:
        name = json.load(answer)["id"]
    with urllib.request.urlopen(f"{url}api/heads/reading?text={name}") as answer:
        told = json.loads(answer.read().splitlines()[-1])["result"]
    return name, told["of"]


def canvas(page: Page, url: str) -> list[Figure]:
    """Time the frames of the view `model` of 12 x 12 heads while it is panned, far and near."""
    rows = []
    for name, zoom in (("12 × 12 heads seen whole but for a tenth", 1.1), ("twice as near", 2)):
        page.goto("about:blank")
        page.goto(f"{url}#model")
        page.wait_for_selector(".body[data-drawn]")
        least = float(page.evaluate("document.querySelector('.whole').dataset.zoom"))
        page.goto("about:blank")
        page.goto(f"{url}#model?x=0&y=0&zoom={least * zoom}")
        page.wait_for_selector(".body[data-drawn]")
        rows.append(frame(page, f"panning, {name}", PANNED, ".whole"))
    return rows


def main() -> None:
    """Time the server alone, then the page."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        stored(file)
        with served(file) as url:
            got(f"{url}api/atlas/map?layer=0&head=0")
            rows = []
            for level in range(4):
                middle, late = tiles(url, level)
                rows.append(figure(f"tile of level {level}, median", middle, "s"))
                rows.append(figure(f"tile of level {level}, p95", late, "s", at_most=0.15))
            survey = got(f"{url}api/atlas/overview?layer=0&head=0")
            rows.append(figure("overview", survey, "s", at_most=20))
            for level in (5, 8):
                middle, late = tiles(url, level)
                rows.append(figure(f"tile of level {level}, p95, after the overview", late, "s"))
            with chromium() as browser:
                rows += panned(browser.new_page(viewport=WINDOW), url)
    with served() as url, chromium() as browser:
        rows += dragged(browser.new_page(viewport=WINDOW), url)
    story = Path(os.environ.get("GLASSHEAD_DATA", "")) / "stories260K"
    if story.is_dir():
        with served(story) as url, chromium() as browser:
            rows += typed(url)
            rows += pointed(browser.new_page(viewport=WINDOW), url)
    with tempfile.TemporaryDirectory() as place:
        wide = {"num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 12}
        model = llama_folder(Path(place), hidden_size=48, **wide)
        with served(model) as url, chromium() as browser:
            rows += canvas(browser.new_page(viewport=WINDOW), url)
    threads = torch.get_num_threads()
    report(f"studio: atlas of {TOKENS:,} tokens, width {WIDTH}, {threads} threads", rows, RESULTS)


if __name__ == "__main__":
    main()
