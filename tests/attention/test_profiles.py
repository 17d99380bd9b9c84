"""Profiles of processors: measured, kept, read again, and ignored where they do not hold."""

import json
import re
import warnings

import pytest
import torch

import glasshead as gh
from glasshead.attention import profiles, tuning
from glasshead.engines.streaming import machine_code, matrix_tiles
from glasshead.engines.streaming.kernels import processor

pytestmark = pytest.mark.usefixtures("kernels_of_the_processor_at_hand")

SHIPPED = ("avx2", "cascade-lake", "default", "intel-amx", "zen3", "zen4", "zen5")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """A cache folder without a profile, and machine code."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine_code, "in_package", lambda: True)
    monkeypatch.setattr(matrix_tiles, "are_there", lambda: False)
    profiles.profiles.cache_clear()
    yield
    profiles.profiles.cache_clear()


def measured():
    """A profile of this machine, as `tune` writes it."""
    given = json.loads((profiles.SHIPPED / "zen5.json").read_text("utf-8"))
    del given["for"]
    return {**given, "name": "measured here", "machine": profiles.machine()._asdict()}


def read():
    profiles.profiles.cache_clear()
    return profiles.at_hand("float32").name


def test_a_measured_profile_comes_before_a_shipped_one():
    assert read() in SHIPPED
    file = profiles.write(measured())
    assert re.fullmatch(r"[0-9A-Za-z.-]+\.json", file.name)
    assert read() == "measured here"


def test_a_profile_is_read_once_in_a_process():
    before = profiles.at_hand("float32").name
    profiles.write(measured())
    assert profiles.at_hand("float32").name == before != "measured here"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"machine": None}, "must be a mapping"),
        ({"machine": {}}, "missing 4 required"),
        ({"speeds": {}}, "it has no 'float32'"),
        ({"speeds": []}, "list indices"),
        (
            {"speeds": {"float32": {"fused": {"forward": [1, 2, 3, 4, 5]}}}},
            "a speed must have 6 numbers, got 5",
        ),
        ({"bandwidth": 0}, "its times must be positive"),
        ({"bandwidth": "fast"}, "finite numbers, got 'fast'"),
        ({"operator": True}, "finite numbers, got True"),
        ({"operator": -1}, "its times must be positive"),
        ({"bandwidth": 1e999}, "finite numbers, got inf"),
    ],
)
def test_a_corrupt_profile_is_ignored_with_one_sentence(change, why):
    profiles.write({**measured(), **change})
    with pytest.warns(
        UserWarning, match=r"^The profile .* is ignored \(.*\); run glasshead tune to"
    ) as found:
        assert read() in SHIPPED
    (warning,) = found
    assert why in str(warning.message)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"3", b"[" * 100_000, b" " * 2**17])
def test_a_file_that_is_no_profile_is_ignored_with_one_sentence(text):
    file = profiles.own_file()
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    with pytest.warns(UserWarning, match="^The profile .* is ignored") as found:
        assert read() in SHIPPED
    assert len(found) == 1
    assert "\n" not in str(found[0].message)


@pytest.mark.parametrize("field", ["processor", "threads", "torch", "glasshead"])
def test_a_profile_of_another_machine_or_version_is_ignored(field):
    given = measured()
    given["machine"][field] = 97 if field == "threads" else "another"
    profiles.write(given)
    with pytest.warns(UserWarning, match=f"its {field} is (another|97), and here it is"):
        assert read() in SHIPPED


def test_a_folder_in_its_place_is_ignored():
    profiles.own_file().mkdir(parents=True)
    with pytest.warns(UserWarning, match="is ignored"):
        assert read() in SHIPPED


FEATURES = {
    "zen5": (0, {"avx512bf16", "avx512vp2intersect"}),
    "zen4": (0, {"avx512bf16"}),
    "intel-amx": (0, {"avx512bf16", "amx-bf16", "amx-tile", "avx512vp2intersect"}),
    "cascade-lake": (1, set()),
    "avx2": (2, set()),
    "zen3": (2, {"sse4a", "vaes", "vpclmulqdq"}),
    "default": (3, set()),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_found_by_features_alone(monkeypatch, name):
    kind, features = FEATURES[name]
    monkeypatch.setattr(processor, "at_hand", lambda: processor.SHIPPED[kind])
    monkeypatch.setattr(processor, "has", features.__contains__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read() == name


@pytest.mark.parametrize(
    "features",
    [
        {"sse4a"},  # Zen 2
        {"vaes", "vpclmulqdq", "avxvnni"},  # Intel's after Haswell, without AVX-512
    ],
)
def test_the_profile_of_zen_3_is_no_other_processor_s(monkeypatch, features):
    monkeypatch.setattr(processor, "at_hand", lambda: processor.SHIPPED[2])
    monkeypatch.setattr(processor, "has", features.__contains__)
    assert read() == "avx2"


def test_each_shipped_profile_states_how_it_came_about():
    files = {file.stem: json.loads(file.read_text("utf-8")) for file in profiles.SHIPPED.iterdir()}
    assert sorted(files) == sorted(SHIPPED)
    for name, given in files.items():
        assert given["name"] == name
        assert len(given["how"]) > 40 or given["machine"]
        profiles.parsed(given)


def test_the_fit_gives_the_times_that_were_measured():
    torch.manual_seed(3)
    times = {}
    for shape in tuning.SHAPES:
        work = tuning.work_of(tuning._problem(shape, "float32"), "fused")
        speed = tuning.Speed(11.0, 307.0, 13.0, growth=-0.07, whole=0.83, number=503.0)
        call = 11e-6 if shape.name == "call" else speed.seconds(work)
        times["float32", "fused", "forward", shape.name] = call
    found = tuning._fitted(times, "float32", "fused", "forward")
    assert found == pytest.approx([11.0, 307.0, 13.0, -0.07, 0.83, 503.0], rel=1e-3)


@pytest.mark.parametrize("seconds", [0, 0.5, 601, float("nan")])
def test_the_seconds_have_bounds(seconds):
    with pytest.raises(ValueError, match=f"seconds must be between 1 and 600, got {seconds}"):
        gh.tune(seconds)


@pytest.mark.parametrize("seconds", ["3", None, True])
def test_the_seconds_are_a_number(seconds):
    with pytest.raises(TypeError, match="seconds must be a number, got"):
        gh.tune(seconds)


@pytest.mark.slow
def test_tuning_writes_a_profile_that_the_next_process_reads(monkeypatch):
    few = [
        one._replace(queries=-(-one.queries // 8), keys=-(-one.keys // 8)) for one in tuning.SHAPES
    ]
    monkeypatch.setattr(tuning, "SHAPES", few)
    shares = []
    tuned = gh.tune(1, shares.append, loaded=True)
    assert shares == sorted(shares)
    assert shares[-1] <= 1
    assert read() == "measured here"
    assert json.loads(profiles.own_file().read_text("utf-8")) == tuned.profile
    assert set(tuned.ratios) == {"float32", "bfloat16", "float16", "float64"}


def test_an_interrupted_measurement_leaves_no_file(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_call", interrupt)
    with pytest.raises(KeyboardInterrupt):
        gh.tune()
    assert not profiles.own_file().exists()
