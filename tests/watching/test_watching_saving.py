"""What was seen is saved and read again as it was; and what else a file may hold is refused."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import glasshead as gh
from watching.small import watched

STATISTICS = {
    "entropy": gh.Entropy(),
    "received": gh.Received(),
    "sink": gh.MassOn([0]),
    "top": gh.TopK(2),
    "map": gh.PooledMap(1, 1),
}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "seen.safetensors"


def rewritten(path, change):
    """The file with another description."""
    with safe_open(path, framework="pt") as opened:
        told = json.loads(opened.metadata()["glasshead"])
    change(told)
    save_file(load_file(path), path, metadata={"glasshead": json.dumps(told)})


@pytest.mark.parametrize(
    "asked", [{}, {"lengths": (3, 5)}, {"lengths": (4, 1, 2), "cached": True}, {"heads": [2, 0]}]
)
def test_it_comes_back_as_it_was(file, asked):
    seen, _ = watched(STATISTICS, **asked)
    seen.save(file)
    back = gh.Seen.load(file)
    assert isinstance(back, gh.Seen)
    assert list(back) == list(seen)
    assert repr(back) == repr(seen)
    for name, was in seen.items():
        now = back[name]
        assert len(now) == len(was)
        assert repr(list(now)) == repr(list(was))
        assert [len(text) for text in now.texts] == [len(text) for text in was.texts]
        for call, before in zip(now, was, strict=True):
            assert call.statistics == before.statistics
            stands = ("shape", "position", "first_key", "keys", "crossing")
            assert all(getattr(call, one) == getattr(before, one) for one in stands)
            for statistic, value in before.values.items():
                again = call[statistic]
                assert type(again) is type(value)
                pairs = (
                    [(again, value)]
                    if isinstance(value, Tensor)
                    else zip(again, value, strict=True)
                )
                assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)


def test_whether_a_call_crosses_comes_back_and_older_files_say_no(file):
    model = gh.MultiHeadAttention(6, 2)
    with gh.watch(model, [gh.Entropy()]) as seen:
        model(torch.randn(1, 7, 6), torch.randn(1, 7, 6))
    seen.save(file)
    assert gh.Seen.load(file)[""][0].crossing
    rewritten(file, lambda told: told["layers"][""][0].pop("crossing"))
    assert not gh.Seen.load(file)[""][0].crossing


def test_what_has_grown_with_a_cache_can_be_joined_again(file):
    statistics = {"entropy": gh.Entropy(), "received": gh.Received()}
    seen, _ = watched(statistics, lengths=(4, 1, 2), cached=True)
    seen.save(file)
    for name, was in seen.items():
        assert torch.equal(gh.Seen.load(file)[name].received, was.received)


def test_kept_weights_are_not_in_the_file(file):
    seen, _ = watched(keep="weights")
    seen.save(file)
    back = gh.Seen.load(file)
    assert back["layers.0"][0].weights is None
    assert torch.equal(back["layers.0"].entropy, seen["layers.0"].entropy)


def test_kept_weights_alone_leave_the_calls(file):
    seen, _ = watched([], keep="weights")
    seen.save(file)
    assert [len(one) for one in gh.Seen.load(file).values()] == [1, 1]


def test_a_statistic_of_ones_own_is_known_by_its_name(file):
    class Own(gh.Statistic):
        unit, axes = "weight", ("key",)

        def of(self, trace):
            return trace.weights.sum(-2)

        def reductions(self, problem):
            return gh.Received().reductions(problem)

        def finish(self, problem, *reduced):
            return reduced[0][0][..., 0]

    seen, _ = watched([Own()], lengths=(3, 5))
    seen.save(file)
    back = gh.Seen.load(file)
    assert torch.equal(back["layers.1"].own, seen["layers.1"].own)


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.pop("layers"),
        lambda told: told.update(layers=[1]),
        lambda told: told.update(layers={"layers.0": 3}),
        lambda told: told["layers"]["layers.0"][0].pop("shape"),
        lambda told: told["layers"]["layers.0"][0].update(shape="2"),
        lambda told: told["layers"]["layers.0"][0].update(shape=["two"]),
        lambda told: told["layers"]["layers.0"][0].update(shape=[]),
        lambda told: told["layers"]["layers.0"][0].update(shape=[2, 3, -7]),
        lambda told: told["layers"]["layers.0"][0].update(position=None),
        lambda told: told["layers"]["layers.0"][0].update(crossing="no"),
        lambda told: told["layers"]["layers.0"][0].update(position=-1),
        lambda told: told["layers"]["layers.0"][0].pop("keys"),
        lambda told: told["layers"]["layers.0"][0].pop("statistics"),
        lambda told: told["layers"]["layers.0"][0]["statistics"].update(more={"class": "Own"}),
        lambda told: told["layers"]["layers.0"][0]["statistics"]["top"].update({"class": "system"}),
        lambda told: told["layers"]["layers.0"][0]["statistics"]["top"].update(fields={"k": "3"}),
        lambda told: told["layers"]["layers.0"][0].update(shape=[2, 3, 7.5]),
        lambda told: told["layers"].update(other=told["layers"]["layers.0"]),
        lambda told: told["layers"].update({"layers.0": []}),
    ],
)
def test_what_was_tampered_with_is_refused(file, change):
    seen, _ = watched(STATISTICS)
    seen.save(file)
    rewritten(file, change)
    sentence = "has a description of watch that cannot be read .*: save it anew"
    with pytest.raises(ValueError, match=sentence):
        gh.Seen.load(file)


def test_files_of_other_kinds_are_refused(file):
    x = torch.randn(5, 3)
    gh.Attention().observe(x, x, x, [gh.Entropy()]).save(file)
    with pytest.raises(
        ValueError, match=r"must hold the kind 'watch', got the kind 'observation'\. Load it with"
    ):
        gh.Seen.load(file)
    seen, _ = watched()
    seen.save(file)
    with pytest.raises(ValueError, match="must hold the kind 'observation', got the kind 'watch'"):
        gh.Observation.load(file)
    save_file({"entropy": torch.ones(3)}, file)
    with pytest.raises(ValueError, match="must hold the kind 'watch', got a file without"):
        gh.Seen.load(file)
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="is not a safetensors file"):
        gh.Seen.load(file)


def test_places_that_are_none_are_refused(file):
    seen, _ = watched()
    with pytest.raises(FileNotFoundError, match=r"there is no file .*\. Check its name"):
        gh.Seen.load(file)
    with pytest.raises(IsADirectoryError, match=r"is a folder\. Name a file in it"):
        seen.save(file.parent)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*\. Create it first"):
        seen.save(file.parent / "none" / "seen.safetensors")


def test_a_write_that_fails_leaves_the_older_file(file, monkeypatch):
    first, _ = watched()
    first.save(file)
    second, _ = watched()

    def half(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glasshead.attention.io.save_file", half)
    with pytest.raises(OSError, match="cannot be written .No space left on device."):
        second.save(file)
    assert list(file.parent.iterdir()) == [file]
    assert torch.equal(gh.Seen.load(file)["layers.0"].entropy, first["layers.0"].entropy)
