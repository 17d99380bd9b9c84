"""Positions by hand, and what follows from them.

Scalings of rotary angles: which pairs keep their speed, and what is no scaling.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from glasshead.layers.positions import scaling_of

PAIRINGS = ["halves", "neighbours"]


START = st.integers(0, 5000)


def turned_by_hand(x, position, pairing, base=10_000.0):
    """Each pair as a complex number, multiplied by e^(ipθ)."""
    d, turned = len(x), [0.0] * len(x)
    for i in range(d // 2):
        a, b = (i, i + d // 2) if pairing == "halves" else (2 * i, 2 * i + 1)
        z = complex(x[a], x[b]) * complex(
            math.cos(position * base ** (-2 * i / d)), math.sin(position * base ** (-2 * i / d))
        )
        turned[a], turned[b] = z.real, z.imag
    return turned


class TestSinusoidal:
    @pytest.mark.parametrize("d_model", [1, 2, 7, 10])
    def test_by_hand(self, d_model):
        positions = torch.tensor([[0, 1, 2], [13, 997, 65_537]])
        found = gh.Sinusoidal(d_model)(positions)
        assert found.shape == (2, 3, d_model)
        for place in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
            for number in range(d_model):
                angle = positions[*place].item() / 10_000 ** ((number - number % 2) / d_model)
                wave = math.cos(angle) if number % 2 else math.sin(angle)
                assert found[*place, number].item() == pytest.approx(wave, abs=1e-6)

    def test_learns_nothing_and_saves_nothing(self):
        module = gh.Sinusoidal(6)
        assert not module.state_dict()
        assert repr(module) == "Sinusoidal(6)"

    def test_positions_of_32_bits(self):
        positions = torch.arange(11)
        module = gh.Sinusoidal(6)
        assert torch.equal(module(positions.int()), module(positions))


class TestLearned:
    def test_is_its_table(self):
        module = gh.Learned(11, 5)
        found = module(torch.tensor([[3, 0], [10, 3]]))
        assert torch.equal(found, module.table.weight[torch.tensor([[3, 0], [10, 3]])])
        found.sum().backward()
        assert module.table.weight.grad[:, 0].tolist() == [1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1]

    @pytest.mark.parametrize("position", [11, -1])
    def test_has_no_other_positions(self, position):
        with pytest.raises(IndexError, match="out of range"):
            gh.Learned(11, 5)(torch.tensor([position]))


class TestRotary:
    @pytest.mark.parametrize("pairing", PAIRINGS)
    @pytest.mark.parametrize("base", [10_000.0, 100.0])
    def test_by_hand(self, pairing, base):
        x = torch.randn(2, 7, 10).double()
        found = gh.Rotary(10, base=base, pairing=pairing)(x, start=3)
        expected = [
            [turned_by_hand(row, 3 + place, pairing, base) for place, row in enumerate(head)]
            for head in x.tolist()
        ]
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))

    @pytest.mark.parametrize("pairing", PAIRINGS)
    @given(query=START, key=START, shift=START, seed=st.integers(0, 99))
    def test_inner_products_depend_on_distance_alone(self, pairing, query, key, shift, seed):
        generator = torch.Generator().manual_seed(seed)
        q, k = (torch.randn(1, 6, generator=generator, dtype=torch.float64) for _ in range(2))
        rotary = gh.Rotary(6, pairing=pairing)
        product = (rotary(q, query) * rotary(k, key)).sum()
        torch.testing.assert_close(
            (rotary(q, query + shift) * rotary(k, key + shift)).sum(), product, rtol=1e-9, atol=1e-9
        )

    def test_lengths_stay(self):
        x = torch.randn(2, 3, 11, 6).double()
        torch.testing.assert_close(gh.Rotary(6)(x).norm(dim=-1), x.norm(dim=-1))

    @pytest.mark.parametrize("pairing", PAIRINGS)
    def test_a_part_of_a_head_turns_as_a_head_of_its_width(self, pairing):
        x = torch.randn(2, 3, 11, 7).double()
        found = gh.Rotary(7, 4, pairing=pairing)(x, start=5)
        turned = gh.Rotary(4, pairing=pairing)(x[..., :4], start=5)
        assert torch.equal(found, torch.cat([turned, x[..., 4:]], -1))

    def test_the_pairings_differ_by_the_order_of_numbers(self):
        x, order = torch.randn(2, 3, 11, 10), torch.tensor([0, 2, 4, 6, 8, 1, 3, 5, 7, 9])
        neighbours = gh.Rotary(10, pairing="neighbours")(x)
        assert torch.equal(gh.Rotary(10)(x[..., order]), neighbours[..., order])
        assert not torch.allclose(gh.Rotary(10)(x), neighbours)

    @pytest.mark.parametrize("pairing", PAIRINGS)
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    def test_a_part_is_the_slice_of_the_whole(self, pairing, dtype):
        x, rotary = torch.randn(2, 3, 37, 6, dtype=dtype), gh.Rotary(6, pairing=pairing)
        whole = rotary(x)
        assert whole.dtype == dtype
        for start, stop in ((0, 1), (1, 2), (5, 23), (36, 37)):
            for module in (rotary, gh.Rotary(6, pairing=pairing)):
                assert torch.equal(module(x[..., start:stop, :], start), whole[..., start:stop, :])

    def test_one_module_serves_every_dtype_in_turn(self):
        x, rotary = torch.randn(2, 11, 6).double(), gh.Rotary(6)
        exact = rotary(x, 7)
        for dtype, tolerance in ((torch.bfloat16, 3e-2), (torch.float32, 1e-6)):
            found = rotary(x.to(dtype), 7)
            assert found.dtype == dtype
            torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance)
        assert torch.equal(rotary(x, 7), exact)

    def test_late_positions_keep_their_digits(self):
        x = torch.tensor([[1.0, 0.0]])
        angle = 99_991.0
        found = gh.Rotary(2)(x, start=99_991)[0].tolist()
        assert found == pytest.approx([math.cos(angle), math.sin(angle)], abs=1e-6)

    def test_gradients_turn_back(self):
        x = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
        upstream = torch.randn(7, 6).double()
        (gradient,) = torch.autograd.grad(gh.Rotary(6)(x), x, upstream)
        torch.testing.assert_close(gh.Rotary(6)(gradient), upstream)

    @pytest.mark.parametrize("pairing", PAIRINGS)
    def test_learns_after_it_was_looked_at_in_inference_mode(self, pairing):
        rotary, x = gh.Rotary(6, pairing=pairing), torch.randn(7, 6)
        with torch.inference_mode():
            expected = rotary(x)
        x.requires_grad_()
        found = rotary(x)
        found.sum().backward()
        assert torch.equal(found, expected)

    def test_saves_nothing(self):
        rotary = gh.Rotary(6)
        rotary(torch.ones(5, 6))
        assert not rotary.state_dict()
        assert repr(rotary) == "Rotary(6, base=10000, pairing='halves')"
        part = "Rotary(7, rotary_dim=4, base=10000, pairing='halves')"
        assert repr(gh.Rotary(7, 4)) == part


class TestErrors:
    @pytest.mark.parametrize(
        ("build", "sentence"),
        [
            (lambda: gh.Rotary(7), "must be even, got 7"),
            (lambda: gh.Rotary(7, 3), "an even number up to head_dim=7, got 3"),
            (lambda: gh.Rotary(6, 8), "an even number up to head_dim=6, got 8"),
            (lambda: gh.Rotary(0), "head_dim must be a whole number of at least 1, got 0"),
            (lambda: gh.Rotary(6, base=0.0), r"base must be a number above 0, got 0\.0"),
            (lambda: gh.Rotary(6, base=math.nan), "base must be a finite number, got nan"),
            (lambda: gh.Rotary(6, pairing="pairs"), "'halves' or 'neighbours', got 'pairs'"),
            (lambda: gh.Learned(0, 3), "context_length.*at least 1, got 0"),
            (lambda: gh.Learned(3, 0), "d_model.*at least 1, got 0"),
            (lambda: gh.Sinusoidal(0), "d_model.*at least 1, got 0"),
        ],
    )
    def test_numbers_that_do_not_fit(self, build, sentence):
        with pytest.raises(ValueError, match=sentence):
            build()

    @pytest.mark.parametrize("width", [4, 8])
    def test_heads_of_another_width(self, width):
        advice = rf"{width}\]\. Build it with head_dim={width}"
        sentence = rf"Rotary\(2\) must have heads of that width.*{advice}"
        with pytest.raises(ValueError, match=sentence):
            gh.Rotary(2)(torch.ones(1, 3, 5, width))


SPEEDS = 100.0 ** (-torch.arange(7, dtype=torch.float64) / 7)


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ({"fast": 2e300, "slow": 1e300}, 0),
        ({"original_length": 1e300, "fast": 2e-300, "slow": 1e-300}, 7),
    ],
)
def test_yarn_of_any_numbers(values, kept):
    found = scaling_of({"kind": "yarn", "factor": 4.0, **values}).stretched(SPEEDS, 100.0)
    torch.testing.assert_close(found[:kept], SPEEDS[:kept])
    # The first pair begins the ramp, where there is one.
    torch.testing.assert_close(found[max(1, kept) :], SPEEDS[max(1, kept) :] / 4)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"factor": 2.0}, "must be an object with a kind, one of 'linear', 'llama3', 'yarn'"),
        ({"kind": ["yarn"], "factor": 2.0}, "must be an object with a kind"),
        ("yarn", "must be an object with a kind, .* got 'yarn'"),
        (
            {"kind": "linear", "factor": 2.0, "slow": 1.0},
            "must have no keys but factor, got 'slow'",
        ),
        ({"kind": "linear"}, "must have factor, which is missing"),
        ({"kind": "linear", "factor": 0.0}, r"LinearScaling\(factor=…\) must be a number above 0"),
        (
            {"kind": "llama3", "factor": 2.0, "low_frequency_factor": 4.0},
            "must be above low_frequency_factor, 4, got 4",
        ),
        (
            {"kind": "yarn", "factor": 2.0, "slow": 37.0},
            "YarnScaling must be above slow, 37, got 32",
        ),
    ],
)
def test_what_is_no_scaling(values, said):
    with pytest.raises(ValueError, match=said):
        gh.LanguageModelConfig(vocab_size=7, positions="rotary", rotary_scaling=values)
