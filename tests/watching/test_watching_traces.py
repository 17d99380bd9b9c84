"""Every step of an attention that a model leaves to a function, from its own inputs on."""

import pytest
import torch
from torch.nn import functional as F

import glasshead as gh
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.keeping import steps_of
from watched_models import TRANSFORMERS, gemma2, gpt2, gpt_oss, llama, mistral
from watching.torch.by_hand import BATCH, WIDTH, Block

LENGTH = 23


def tokens():
    return torch.randint(0, 40, (1, LENGTH), generator=torch.Generator().manual_seed(3))


ADDS_MASKS = pytest.mark.skipif(
    TRANSFORMERS.major < 5, reason="GPT-2 of transformers 4 puts numbers in hidden places"
)


@pytest.mark.parametrize(
    "make", [llama, mistral, gemma2, gpt_oss, pytest.param(gpt2, marks=ADDS_MASKS)]
)
def test_its_weights_are_those_that_the_model_returns(make):
    model = make("eager").eval()
    with torch.inference_mode(), gh.watch(model, keep="trace") as seen:
        made = model(tokens(), output_attentions=True)
    for watched, weights in zip(seen.values(), made.attentions, strict=True):
        trace = watched.trace
        torch.testing.assert_close(trace.weights, weights, atol=1e-5, rtol=1e-4)
        assert trace.masked.isneginf().any()
    problem = next(iter(seen.values())).trace.problem
    keys = problem.key.repeat_interleave(problem.group, -3)
    scores = next(iter(seen.values())).trace.scores
    torch.testing.assert_close(scores, problem.query @ keys.mT, atol=1e-4, rtol=1e-4)


def test_it_is_the_trace_of_the_inputs():
    given = []

    def attend(query, key, value):
        given[:] = query, key, value
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.37)

    model, x = Block(attend).double(), torch.randn(BATCH, 7, WIDTH).double()
    with gh.watch(model, keep="trace") as seen:
        model(x)
    expected = gh.Attention(score=gh.Dot(beta=0.37), mask=gh.causal()).trace(*given)
    for name, step in seen[""].trace.steps():
        torch.testing.assert_close(step, getattr(expected, name).detach())


def test_an_output_that_is_another_is_refused():
    x = torch.randn(1, 2, 5, 3)
    problem = gh.Attention().problem(x, x, x)
    other = gh.Attention(mask=gh.causal())(x, x, x)
    captured = CapturedCall(problem, context=lambda: other)
    with pytest.raises(ValueError, match="keep='trace' needs attention that follows from its que"):
        steps_of(captured, problem, "one")


def test_a_module_that_calls_a_function_is_explained():
    torch.manual_seed(5)

    class Fused(torch.nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    x, words = torch.randn(3, 5), ["I", "see", "you"]
    told = gh.explain(Fused(), x, tokens=words, query="see")
    expected = gh.explain(gh.Attention().trace(x, x, x), tokens=words, query="see")
    assert told["context"].numbers == expected["context"].numbers
