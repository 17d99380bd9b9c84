"""The walk through the views that docs/studio.md takes, and its pictures.

Models that nobody trained are walked through, and the pictures are thrown away. With the variables
`GLASSHEAD_SHOWN`, a folder with what `SHOWN` names, and `GLASSHEAD_PICTURES`, those are shown, and
the pictures kept: `make pictures` does it.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

import glasshead as gh
from studio.small_runs import SmallRun
from translated import translated
from written import written

STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high."
)
SHOWN = ("translator", "model", "watched", "book.safetensors")


@dataclass(frozen=True)
class Scene:
    """One picture of the walk.

    Attributes:
        name: Of the picture.
        of: What is shown, one of `SHOWN`.
        view: Which view of it.
        state: What the address says of the view.
        text: What is read, where the view reads something.
        look: Of the browser: width, height, dark, language.
    """

    name: str
    of: str
    view: str
    state: str = ""
    text: str | None = None
    look: dict[str, object] = field(default_factory=dict)


SCENES = (
    Scene("studio_steps", "translator", "steps", look={"width": 1440}),
    Scene("studio_steps_chinese", "translator", "steps", look={"language": "zh-Hant"}),
    Scene("studio_heads", "model", "heads", "layer=1&head=3&query=26&key=25", STORY),
    Scene("studio_heads_dark", "model", "heads", "layer=1&head=3&scale=log", STORY, {"dark": True}),
    Scene("studio_alignment", "translator", "alignment", look={"height": 960}),
    Scene("studio_atlas", "book.safetensors", "atlas"),
    Scene("studio_atlas_near", "book.safetensors", "atlas", "zoom=5.6&y=30&x=30&i=30&j=29"),
    Scene("studio_training", "watched", "training", look={"height": 1280}),
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Path:
    """The folder with all that is shown."""
    if kept := os.environ.get("GLASSHEAD_SHOWN"):
        return Path(kept)
    folder = tmp_path_factory.mktemp("shown")
    translated(folder / "translator")
    written(folder / "model", "context_length=61", "num_layers=2", "num_heads=4")
    SmallRun(folder / "watched").watch().go(53)
    x = torch.randn(1, 2, 131, 5, generator=torch.Generator().manual_seed(3))
    gh.Attention(mask=gh.causal()).weights(3 * x, x).save(folder / "book.safetensors")
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Where pictures are put."""
    kept = os.environ.get("GLASSHEAD_PICTURES")
    return Path(kept) if kept else tmp_path_factory.mktemp("pictures")


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_picture_is_taken_of_each_view(scene, shown, pictures, serving, looking):
    served = serving(shown / scene.of)
    asked = [scene.state] if scene.state else []
    if scene.text is not None:
        asked.append(f"text={served.studio.texts.add(scene.text)}")
    look = looking(served.url, **{"height": 800, **scene.look})
    page = look.open(f"#{scene.view}?{'&'.join(asked)}")
    # Whatever follows the first drawing, such as tiles that are on their way, has come.
    page.wait_for_load_state("networkidle")
    file = pictures / f"{scene.name}.png"
    page.screenshot(path=file)
    assert page.locator(f".view.{scene.view} .refused").count() == 0
    assert file.stat().st_size > 10_000
