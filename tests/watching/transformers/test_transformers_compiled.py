"""Compiled models of transformers are seen as they are when they are not compiled."""

import shutil

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager

transformers = pytest.importorskip("transformers")

# The compiler takes seconds for each; test_watching_compiled.py has quick ones.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not hasattr(torch._dynamo.eval_frame, "innermost_backend"),
        reason=f"on PyTorch {torch.__version__} watch compiles nothing again",
    ),
]
WITH_COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
NEW = 5


@pytest.fixture(autouse=True)
def _from_the_beginning():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def told(call):
    """Where a call stands in its text, and what of it is a text."""
    places = call.position, call.first_key, call.queries, call.keys, call.crossing
    real = None if call.real is None else call.real.tolist()
    return call.forward, call.run, *places, real


def alike(seen, other):
    assert list(seen) == list(other)
    for name in other:
        for call, its in zip(seen[name], other[name], strict=True):
            assert told(call) == told(its)
            for statistic in ("entropy", "received", "sink", "largest"):
                torch.testing.assert_close(call[statistic], its[statistic], rtol=1e-5, atol=1e-5)


# Of each kind of model one is padded and one is not; sounds and images have no padding.
@pytest.mark.parametrize(
    ("build", "backend", "side"),
    [
        pytest.param(models.gpt2, "inductor", "left", marks=WITH_COMPILER),
        (models.llama, "aot_eager", None),
        *((build, "aot_eager", "left") for build in (models.mistral, models.bert)),
        (models.vit, "aot_eager", None),
        # An encoder and a decoder take twice as long, so no backend traces them again.
        *((models.t5, "eager", "left"), (models.whisper, "eager", None)),
    ],
)
def test_compiled_it_is_seen_as_before(build, backend, side):
    given, model = models.inputs(build, side), build("sdpa")
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        with gh.watch(model, eager.STATISTICS) as before:
            model(**given)
        alone = compiled(**given)[0]
        with gh.watch(compiled, eager.STATISTICS) as seen:
            assert torch.equal(compiled(**given)[0], alone)
        assert torch.equal(compiled(**given)[0], alone)
    alike(seen, before)


def static(model, given, backend=None):
    """A text that grows in a static cache, compiled by `generate` where a backend is given."""
    asked = {"disable_compile": True}
    if backend is not None:
        config = transformers.CompileConfig(backend=backend, mode=None)
        # `generate` compiles on a GPU only, but for tests.
        config._compile_all_devices = True
        asked = {"compile_config": config}
    return model.generate(
        **given,
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        do_sample=False,
        cache_implementation="static",
        return_dict_in_generate=True,
        output_scores=True,
        **asked,
    )


@pytest.mark.parametrize(
    ("build", "backend", "side"),
    [
        pytest.param(models.llama, "inductor", "left", marks=WITH_COMPILER),
        # With a sliding window of fewer keys than the text has.
        (models.mistral, "aot_eager", "left"),
        *((build, "aot_eager", None) for build in (models.gpt2, models.bart)),
        (models.t5, "aot_eager", "left"),
    ],
)
def test_static_caches_are_seen_in_the_code_that_generate_compiles(build, backend, side):
    given, model = models.inputs(build, side, batch=2, length=7), build("sdpa")
    given = {name: one for name, one in given.items() if not name.startswith("decoder")}
    with gh.watch(model, eager.STATISTICS) as before:
        static(model, given)
    alone = static(model, given, backend)
    with gh.watch(model, eager.STATISTICS) as seen:
        watched = static(model, given, backend)
    assert torch.equal(watched.sequences, alone.sequences)
    assert all(map(torch.equal, watched.scores, alone.scores))
    alike(seen, before)


@pytest.mark.parametrize(
    ("build", "mode", "sentence"),
    [
        (models.bert, "eager", r"BertSelfAttention at .* computes its own softmax\. Watch"),
        (models.gemma2, "eager", r"Gemma2Attention at .* computes its own softmax\. Watch"),
    ],
)
def test_what_is_compiled_of_other_modes_is_refused(build, mode, sentence):
    given, model = models.inputs(build), build(mode)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        alone = compiled(**given)[0]
        with pytest.raises(RuntimeError, match=sentence), gh.watch(compiled, [gh.Entropy()]):
            watched = compiled(**given)[0]
    assert torch.equal(watched, alone)
