"""What the view `picture` says of a vision model: the library's own maps and rollout."""

import io

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

import glasshead as gh
from glasshead.studio.app import application
from glasshead.studio.background_jobs import Forgotten, Refusal, TooMuch, Work
from glasshead.studio.shell import first_view
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.views.picture import Pictures, example
from glasshead.studio.views.prompt import described
from glasshead.tasks.run_folder import reads_pictures
from pretrained_folders import llama_folder
from studio.pictures.vision_folders import clip_folder, dino_folder, vit_folder

BUILDS = {"vit": vit_folder, "dino": dino_folder, "clip": clip_folder}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("vision")
    return {name: build(place / name) for name, build in BUILDS.items()}


def seen_by_the_library(folder, pixels):
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode(), gh.watch(model, keep="weights") as seen:
        model(pixel_values=pixels)
    return seen


def file_of(size=(41, 29), kind="PNG", seed=3):
    numbers = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(numbers).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("query", [0, 4])
def test_maps_and_rollout_are_those_of_the_library(folders, name, query):
    studio = Studio(folders[name])
    pictures = Pictures(studio)
    pixels = studio.subject.pictures().prepare(example())
    seen = seen_by_the_library(folders[name], pixels)
    expected = [layer.image(query, heads=[head]) for layer in seen.values() for head in range(3)]
    reached = gh.rollout(seen, rows=[query])[0, 0]
    expected.append(list(seen.values())[-1].on_image(reached))
    maps = pictures.maps(None, query, Work())
    torch.testing.assert_close(maps, torch.stack([each.weights for each in expected]))
    sums = pictures.sums(None, query, Work())
    assert sums.pop("patches") == pytest.approx([each.share for each in expected])
    assert list(sums) == list(expected[0].elsewhere)
    for kind, each in sums.items():
        assert each == pytest.approx([one.elsewhere[kind] for one in expected])
    # All that a query gives goes to patches or elsewhere.
    whole = maps.sum((1, 2)) + torch.tensor([*sums.values()]).sum(0)
    torch.testing.assert_close(whole, torch.ones(7))
    told = pictures.summary(None, Work())
    assert (told["heads"], told["layers"]) == ([3, 3], list(seen))


def test_the_patches_and_other_tokens_are_told(folders):
    told = Pictures(Studio(folders["vit"])).summary(None, Work())
    assert (told["grid"], told["first"], told["keys"]) == ([4, 5], 1, 21)
    assert told["others"] == {"class": [0]}
    told = Pictures(Studio(folders["dino"])).summary(None, Work())
    assert (told["grid"], told["first"]) == ([3, 3], 3)
    assert told["others"] == {"class": [0], "registers": [1, 2]}


def test_a_picture_is_shown_as_the_model_is_given_it(folders):
    from transformers import AutoImageProcessor

    content = file_of()
    for name, size in (("vit", (28, 35)), ("dino", (15, 15))):
        pictures = Pictures(Studio(folders[name]))
        shown = pictures.pixels(pictures.add(content), Work())
        assert shown.shape == (*size, 3)
        assert 0 <= shown.min() < shown.max() <= 1
    pixels = np.asarray(Image.open(io.BytesIO(content)).resize((35, 28))) / 255
    vit = Pictures(Studio(folders["vit"]))
    shown = vit.pixels(vit.add(content), Work())
    torch.testing.assert_close(shown, torch.tensor(pixels).float(), atol=1e-6, rtol=0)
    # With a preparation of its own, numbers are those of transformers before they are normalized.
    own = AutoImageProcessor.from_pretrained(folders["dino"])
    own.do_normalize = False
    expected = own(images=Image.open(io.BytesIO(content)), return_tensors="pt")["pixel_values"]
    dino = Pictures(Studio(folders["dino"]))
    shown = dino.pixels(dino.add(content), Work())
    torch.testing.assert_close(shown, expected[0].permute(1, 2, 0).clamp(0, 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_pictures_of_many_formats_are_opened(folders, kind):
    pictures = Pictures(Studio(folders["vit"]))
    assert pictures.pixels(pictures.add(file_of(kind=kind)), Work()).shape == (28, 35, 3)


def test_another_picture_has_other_maps(folders):
    pictures = Pictures(Studio(folders["vit"]))
    name = pictures.add(file_of())
    assert pictures.add(file_of()) == name
    assert not torch.equal(pictures.maps(name, 0, Work()), pictures.maps(None, 0, Work()))


@pytest.mark.parametrize(
    "content",
    [b"", b"no picture", file_of()[:200], b"GIF89a" + bytes(20), b"%!PS-Adobe-3.0 EPSF-3.0\n"],
)
def test_what_is_no_picture_is_refused_in_a_sentence(folders, content):
    with pytest.raises(Refusal, match=r"a picture that can be opened\. Choose one in the format"):
        Pictures(Studio(folders["vit"])).add(content)


def test_what_is_too_large_or_forgotten_is_refused(folders):
    with pytest.raises(TooMuch, match="A picture must have at most 100 bytes, got"):
        Pictures(Studio(folders["vit"], Limits(text=100))).add(file_of())
    wide = io.BytesIO()
    Image.new("1", (2**13, 2**13)).save(wide, "PNG")
    with pytest.raises(TooMuch, match="pixels, got 67,108,864"):
        Pictures(Studio(folders["vit"])).add(wide.getvalue())
    with pytest.raises(Forgotten, match=r"no longer here\. Choose it again"):
        Pictures(Studio(folders["vit"])).summary("0" * 16, Work())
    with pytest.raises(Refusal, match=r"query must be from 0 to 20, got 21"):
        Pictures(Studio(folders["vit"])).maps(None, 21, Work())


def test_vision_models_are_told_from_others(folders, tmp_path):
    assert all(reads_pictures(folder) for folder in folders.values())
    text = llama_folder(tmp_path / "llama")
    assert not reads_pictures(text)
    assert not reads_pictures(tmp_path)
    studio = Studio(folders["dino"])
    assert (studio.subject.kind, first_view(studio.subject, "vision")) == ("vision", "picture")
    said = described(studio) or {}
    assert (said["name"], said["layers"], said["heads"]) == (None, 2, 3)
    with pytest.raises(Refusal, match="a picture needs a vision model, got a model .* in"):
        Studio(text).subject.pictures()
    with pytest.raises(Refusal, match="a text needs a model that reads it, got a vision model"):
        studio.subject.reader()


def test_weights_of_another_shape_are_refused(tmp_path):
    folder = vit_folder(tmp_path / "vit")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"patch_size": 7', '"patch_size": 5'))
    with pytest.raises(ValueError, match=r"Check config\.json"):
        Studio(folder).subject.pictures()


def test_the_routes_answer_and_refuse(folders):
    client = TestClient(application(Studio(folders["vit"])), base_url="http://localhost")
    name = client.post("/api/picture", content=file_of()).json()["id"]
    for image in ({}, {"image": name}):
        assert client.get("/api/picture", params=image).json()["grid"] == [4, 5]
        shapes = {"pixels": "28,35,3", "maps": "7,4,5"}
        for path, shape in shapes.items():
            found = client.get(f"/api/picture/{path}", params={**image, "query": 3})
            assert (found.status_code, found.headers["shape"]) == (200, shape)
        told = client.get("/api/picture/sums", params={**image, "query": 3}).json()
        assert len(told["class"]) == 7
    assert client.post("/api/picture", content=b"x").status_code == 400
    assert client.get("/api/picture", params={"image": "f" * 16}).status_code == 410
    assert client.get("/api/picture/maps", params={"query": 99}).status_code == 400
    without = TestClient(application(Studio()), base_url="http://localhost")
    assert without.get("/api/picture").status_code == 404
