"""What is saved is read again as it was, bit for bit; and what else a file may hold is refused."""

import json
import math
import os
import pickle
import stat
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import glasshead as gh
import systems
from cases import cases
from glasshead.attention.io import serialize
from hypothesis_profiles import examples


class Own(gh.Statistic):
    """A statistic that glasshead does not know."""

    unit = "queries"
    axes = ()
    gives_keys = True

    def of(self, trace):
        return trace.weights.sum((-2, -1))

    def reductions(self, problem):
        return gh.Received().reductions(problem)

    def finish(self, problem, *reduced):
        return reduced[0][0].sum((-2, -1))


class Both(NamedTuple):
    least: Tensor
    most: Tensor


@dataclass(frozen=True)
class OwnPair(Own):
    """The same, of two tensors."""

    named: bool

    def finish(self, problem, *reduced):
        del problem
        mass = reduced[0][0][..., 0]
        return Both(mass.amin(-1), mass.amax(-1)) if self.named else (mass.amin(-1), mass)


STATISTICS = [
    gh.ArgMax(),
    gh.DistanceHistogram([0, 1.5, math.inf]),
    gh.Entropy(),
    gh.LogSumExp(),
    gh.MassOn([0, 3]),
    gh.MaxScore(),
    gh.MaxWeight(),
    gh.MeanDistance(),
    gh.PooledMap(2, 3),
    gh.Received(last=2),
    gh.TopK(3),
]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "saved.safetensors"


def inputs(*leading, queries=7, keys=11, dim=5):
    return torch.randn(*leading, queries, dim), torch.randn(*leading, keys, dim)


def observed(statistics, *leading):
    query, key = inputs(*leading)
    return gh.Attention(mask=gh.causal()).observe(query, key, key, statistics)


def rewritten(path, change):
    """The file with another description."""
    with safe_open(path, framework="pt") as opened:
        told = json.loads(opened.metadata()["glasshead"])
    change(told)
    save_file(load_file(path), path, metadata={"glasshead": json.dumps(told)})


# Observations


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 5, 3)])
def test_an_observation_comes_back_as_it_was(file, leading):
    seen = observed(STATISTICS, *leading)
    seen.save(file)
    back = gh.Observation.load(file)
    assert back.statistics == seen.statistics
    assert list(back.statistics) == list(seen.statistics)
    assert repr(back) == repr(seen)
    assert torch.equal(back.context, seen.context)
    for statistic in STATISTICS:
        was, now = seen[statistic], back[statistic]
        assert type(was) is type(now)
        for before, after in zip(was, now, strict=True) if isinstance(was, tuple) else [(was, now)]:
            assert torch.equal(before, after)
            assert before.dtype == after.dtype


def test_the_names_in_the_file_are_those_of_python(file):
    observed({"sink": gh.MassOn([0]), "top": gh.TopK(2)}, 2, 3).save(file)
    assert set(load_file(file)) == {"context", "sink", "top.weights", "top.keys"}


def test_observations_that_were_loaded_can_be_added(file):
    parts = [observed([gh.Entropy(), gh.TopK(2)], 2, 3) for _ in range(2)]
    expected = parts[0] + parts[1]
    parts[0].save(file)
    found = gh.Observation.load(file) + parts[1]
    assert torch.equal(found.entropy, expected.entropy)
    assert torch.equal(found.top_k.keys, expected.top_k.keys)


def test_an_own_statistic_is_kept_by_its_name(file):
    asked = {"own": Own(), "both": OwnPair(named=True), "pair": OwnPair(named=False)}
    seen = observed(asked, 2, 3)
    seen.save(file)
    back = gh.Observation.load(file)
    assert torch.equal(back.own, seen.own)
    assert torch.equal(back["both"].most, seen.both.most)
    assert torch.equal(back.pair[1], seen.pair[1])
    assert repr(back) == repr(seen)
    assert repr(back.statistics["own"]) == "Own(…)"
    assert not back.statistics["own"].has_mean
    assert back.to_frame("own").equals(seen.to_frame("own"))
    sentence = r"Own was saved by its name alone, .*\. Observe it again, and add before saving"
    for first, second in ((back, back), (back, seen), (seen, back)):
        with pytest.raises(ValueError, match=sentence):
            first + second
    with pytest.raises(ValueError, match=sentence):
        gh.Attention().observe(*inputs(2, 3), inputs(2, 3)[1], [back.statistics["own"]])
    # Saved once more, it is still known by name.
    back.save(file)
    assert repr(gh.Observation.load(file)) == repr(seen)


def test_gradients_and_half_precision_are_no_hindrance(file):
    x = torch.randn(2, 3, 7, 5, dtype=torch.bfloat16, requires_grad=True)
    seen = gh.Attention().observe(x, x, x, [gh.Entropy()], gradient=True)
    seen.save(file)
    back = gh.Observation.load(file)
    assert torch.equal(back.context, seen.context.detach())
    assert not back.context.requires_grad
    assert torch.equal(back.entropy, seen.entropy.detach())


# Weights


def same_tiles(W, back):
    assert back.shape == W.shape
    assert back.dtype == W.dtype
    assert torch.equal(back.logsumexp, W.logsumexp)
    assert torch.equal(back.dense(), W.dense())
    queries, keys = W.shape[-2:]
    rows, columns = range(queries // 3, queries), range(keys // 2)
    assert torch.equal(back.tile(rows, columns), W.tile(rows, columns))


def returned(W, file):
    W.save(file)
    return gh.Weights.load(file)


@given(cases())
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_weights_of_every_mask_come_back_bit_for_bit(tmp_path, case):
    query, key, _ = case.inputs()
    W = gh.Attention().weights(query, key, **case.call())
    same_tiles(W, returned(W, tmp_path / "weights.safetensors"))


PARTS = [
    {"score": gh.Dot()},
    {"score": gh.Dot(torch.tensor([0.5, 1.0, 2.0]))},
    {"score": gh.ScaledDot(nn.Parameter(torch.ones(3)))},
    {"score": gh.ScaledDot(0.3), "softcap": 2.0},
    {"score": gh.Cosine(7.0)},
    {"score": gh.Gaussian(0.1)},
    {"score": gh.Additive(5)},
    {"score": gh.Additive(5).requires_grad_(False)},
    {"score": gh.Additive(5, 3, torch.tensor(2.0))},
    {"normalizer": gh.SoftmaxOne(-1.0)},
    {"normalizer": gh.SoftmaxOne(nn.Parameter(torch.randn(3)))},
    {"bias": gh.ALiBi(3)},
    {"bias": gh.RelativeBias(3, buckets=8, max_distance=9, bidirectional=False)},
    {"bias": torch.randn(3, 7, 11).masked_fill(torch.rand(3, 7, 11) < 0.2, -torch.inf)},
    {"mask": gh.from_huggingface(torch.tensor([[1] * 9 + [0] * 2] * 2))[0]},
    {"mask": ~(gh.causal() | gh.prefix([2, 3])) & gh.documents([0] * 4 + [1] * 7)},
    {"mask": gh.window(2, 3, offset=torch.tensor([1, 2]))},
]


@pytest.mark.parametrize("parts", PARTS, ids=lambda parts: repr(parts)[:12])
def test_every_part_of_a_recipe_comes_back(file, parts):
    W = gh.Attention(**parts).weights(*inputs(2, 3), bias=gh.ALiBi(3), offset=torch.tensor([4, 1]))
    state = torch.get_rng_state()
    back = returned(W, file)
    assert torch.equal(torch.get_rng_state(), state)
    same_tiles(W, back)
    assert torch.equal(back @ torch.eye(11), W @ torch.eye(11))
    # Saved once more, the file is the same.
    first = file.read_bytes()
    back.save(file)
    assert file.read_bytes() == first


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 5, 3)])
def test_every_layout_comes_back(file, leading):
    W = gh.Attention(mask=gh.causal()).weights(*inputs(*leading))
    same_tiles(W, returned(W, file))


@pytest.mark.parametrize("score", [gh.ScaledDot, gh.Gaussian, gh.Cosine])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inputs_that_are_views_come_back_bit_for_bit(file, score, dtype):
    # In memory the axes lie otherwise than in the file, which may be rounded otherwise.
    for axes, shape in (
        ((1, 2), (2, 37, 3, 17)),
        ((2, 3), (1, 1, 5, 7)),
        ((2, 3), (1, 2, 64, 127)),
    ):
        query, key = (torch.randn(shape).to(dtype).transpose(*axes) for _ in range(2))
        assert not query.is_contiguous()
        W = gh.Attention(mask=gh.causal(), score=score()).weights(query, key)
        same_tiles(W, returned(W, file))


class OwnScore(gh.Dot):
    pass


class OwnMask(gh.Mask):
    def visible(self, tile):
        return gh.causal().visible(tile)


class Softmax(gh.Softmax):
    """One of the same name is still another."""


class OwnBias(gh.Bias):
    def forward(self, tile):
        return tile.distance() * 0.0


class OwnSoftmax(gh.Softmax):
    pass


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"score": OwnScore()}, "score OwnScore"),
        ({"mask": gh.causal() & ~OwnMask()}, "mask OwnMask"),
        ({"bias": OwnBias()}, "biases OwnBias"),
        ({"normalizer": OwnSoftmax()}, "normalizer OwnSoftmax"),
        ({"normalizer": Softmax()}, "normalizer Softmax"),
    ],
)
def test_a_part_of_ones_own_is_refused_and_nothing_written(file, parts, sentence):
    W = gh.Attention(**parts).weights(*inputs(2, 3))
    with pytest.raises(TypeError, match=f"cannot save the custom {sentence}"):
        W.save(file)
    assert list(file.parent.iterdir()) == []


def test_a_description_holds_no_numbers_of_tensors():
    tensors = {}
    told = serialize(gh.padding([3, 5]) & gh.causal(), "mask", tensors)
    assert "3" not in json.dumps(told)
    assert torch.equal(tensors["mask.masks.0.lengths"], torch.tensor([3, 5]))


# Files

LOADERS = [gh.Observation.load, gh.Weights.load]


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "saved.safetensors is not a safetensors file"),
        (b"not safetensors at all", "saved.safetensors is not a safetensors file"),
        (pickle.dumps({"a": 1}), "saved.safetensors is not a safetensors file"),
    ],
)
def test_another_kind_of_file_is_refused(file, load, content, sentence):
    file.write_bytes(content)
    with pytest.raises((ValueError, OSError), match=sentence):
        load(file)


@pytest.mark.parametrize("load", LOADERS)
def test_a_place_that_is_no_file_is_refused(tmp_path, load):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\. Check its name"):
        load(tmp_path / "none")
    with pytest.raises(IsADirectoryError, match=r"is a folder\. Name a file in it"):
        load(tmp_path)


@pytest.mark.parametrize("metadata", [None, {"glasshead": "{"}, {"glasshead": "[]"}, {"a": "b"}])
@pytest.mark.parametrize("load", LOADERS)
def test_tensors_of_another_program_are_refused(file, load, metadata):
    save_file({"context": torch.ones(3)}, file, metadata=metadata)
    with pytest.raises(
        ValueError,
        match="must hold the kind '(observation|weights)', got a file without",
    ):
        load(file)


def test_each_kind_of_file_is_told_from_the_other(file):
    observed([gh.Entropy()], 2, 3).save(file)
    with pytest.raises(
        ValueError, match="must hold the kind 'weights', got the kind 'observation'"
    ):
        gh.Weights.load(file)
    gh.Attention().weights(*inputs(2, 3)).save(file)
    with pytest.raises(
        ValueError, match="must hold the kind 'observation', got the kind 'weights'"
    ):
        gh.Observation.load(file)


def test_a_file_of_a_later_version_is_refused(file):
    observed([gh.Entropy()]).save(file)
    rewritten(file, lambda told: told.update(version=2))
    with pytest.raises(
        ValueError, match=r"in version 1 of its format .*, got 2\. Update glasshead"
    ):
        gh.Observation.load(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.pop("statistics"),
        lambda told: told.update(statistics=[1]),
        lambda told: told["statistics"]["top_k"].update({"class": "Statistic"}),
        lambda told: told["statistics"]["top_k"].update({"class": "system"}),
        lambda told: told["statistics"]["top_k"].update(fields={"j": 3}),
        lambda told: told["statistics"]["top_k"].update(fields={"k": "3"}),
        lambda told: told["statistics"]["top_k"].update(parts=["weights", "values"]),
        lambda told: told["statistics"]["top_k"].update(value="a b"),
        lambda told: told["statistics"].update(more={"class": "Own", "unit": "", "axes": []}),
    ],
)
def test_an_observation_that_was_tampered_with_is_refused(file, change):
    observed([gh.TopK(2)], 2, 3).save(file)
    rewritten(file, change)
    with pytest.raises(ValueError, match="description of observation that cannot be read"):
        gh.Observation.load(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda recipe: recipe.pop("mask"),
        lambda recipe: recipe["mask"].update({"is": "Path"}),
        lambda recipe: recipe["mask"]["of"].update(lengths={"tensor": "none"}),
        lambda recipe: recipe["mask"]["of"].update(lengths={"tensor": "key"}),
        lambda recipe: recipe.update(mask=recipe["score"]),
        lambda recipe: recipe.update(normalizer={"is": "Dot", "of": {"beta": 1.0}}),
        lambda recipe: recipe["score"].update({"is": "Additive"}),
        lambda recipe: recipe["score"]["of"].update(beta={"tensor": "mask.lengths"}),
        lambda recipe: recipe.update(biases=[{"tensor": "query"}]),
    ],
)
def test_weights_that_were_tampered_with_are_refused(file, change):
    W = gh.Attention(mask=gh.padding([3, 5])).weights(*inputs(2, 3))
    W.save(file)
    rewritten(file, lambda told: change(told["recipe"]))
    with pytest.raises(ValueError, match="description of weights that cannot be read"):
        gh.Weights.load(file)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    seen = observed([gh.Entropy()])
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*none\. Create it first"):
        seen.save(tmp_path / "none" / "seen.safetensors")
    with pytest.raises(IsADirectoryError, match=r"is a folder\. Name a file in it"):
        seen.save(tmp_path)
    (tmp_path / "plain").write_text("")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        seen.save(tmp_path / "plain" / "seen.safetensors")


def test_a_write_that_fails_leaves_the_older_file(file, monkeypatch):
    first, second = observed([gh.Entropy()], 2, 3), observed([gh.Entropy()], 2, 3)
    first.save(file)

    def half(tensors, path, metadata):
        del tensors, metadata
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glasshead.attention.io.save_file", half)
    with pytest.raises(
        OSError, match=r"cannot be written .No space left on device.\. Name another"
    ):
        second.save(file)
    assert list(file.parent.iterdir()) == [file]
    assert torch.equal(gh.Observation.load(file).entropy, first.entropy)


@systems.permissions
def test_permissions_and_links_stay(file):
    seen = observed([gh.Entropy()], 2, 3)
    seen.save(file)
    (file.parent / "usual").write_text("")
    assert file.stat().st_mode == (file.parent / "usual").stat().st_mode
    file.chmod(0o600)
    link = file.with_name("link.safetensors")
    link.symlink_to(file)
    seen.save(os.fspath(link))
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_observation_may_be_saved_over_the_file_it_was_read_from(file):
    seen = observed([gh.Entropy(), gh.TopK(2)], 2, 3)
    seen.save(file)
    back = gh.Observation.load(file)
    back.save(file)
    assert torch.equal(back.entropy, seen.entropy)
    assert torch.equal(gh.Observation.load(file).top_k.keys, seen.top_k.keys)


def test_an_observation_under_a_name_of_its_own_is_refused(tmp_path):
    x, file = torch.randn(5, 3), tmp_path / "seen.safetensors"
    gh.Attention().observe(x, x, x, {"sink": gh.MassOn([0])}).save(file)
    with safe_open(file, "pt") as opened:
        told = opened.metadata()
    tensors = load_file(file)
    save_file(
        tensors | {"save": tensors["sink"].clone()},
        file,
        metadata={name: text.replace('"sink"', '"save"') for name, text in told.items()},
    )
    with pytest.raises(ValueError, match="cannot be read.*'save'"):
        gh.Observation.load(file)
