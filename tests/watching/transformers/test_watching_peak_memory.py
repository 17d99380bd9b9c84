"""The memory of a watched pass grows with its tokens, and not with their pairs."""

import gc
import tracemalloc

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import GPT2Config, GPT2LMHeadModel

import glasshead as gh

STATISTICS = [gh.Entropy(), gh.Received(), gh.MassOn([0])]
BYTES = 4
# The queries of a block of scores, which each thread has; programs and records.
QUERIES, FIXED = 64, 2**19


def most_bytes(function):
    """The most bytes of tensors that were there at a time: PyTorch's, and NumPy's and Python's."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = function()
    del kept
    held = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    gc.collect()
    tracemalloc.start()
    try:
        kept = function()  # noqa: F841 - it is held until the peak is read
        return most + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("same_bits", [True, False])
@pytest.mark.parametrize(
    ("tokens", "heads", "width", "layers"), [(1031, 3, 33, 5), (1031, 7, 77, 2), (1031, 3, 33, 11)]
)
def test_a_watched_pass_adds_rows_of_statistics_and_the_vectors_of_one_layer(
    tokens, heads, width, layers, same_bits
):
    torch.manual_seed(tokens)
    config = GPT2Config(
        vocab_size=31,
        n_positions=tokens,
        n_embd=width,
        n_head=heads,
        n_layer=layers,
        bos_token_id=None,
        eos_token_id=None,
    )
    model, text = GPT2LMHeadModel(config).eval(), torch.randint(31, (1, tokens))

    def plain():
        with torch.no_grad():
            return model(text, use_cache=False)

    def watched():
        with torch.no_grad(), gh.watch(model, STATISTICS, same_bits=same_bits) as seen:
            model(text, use_cache=False)
        return seen

    for once in (plain, watched):
        once()
    kept = len(STATISTICS) * layers * heads * tokens
    # Queries, keys and values of a layer, those that are packed, and the sums of its rows.
    at_work = tokens * (4 * width + 24 * heads)
    blocks = torch.get_num_threads() * QUERIES * tokens
    bound = BYTES * (kept + at_work + blocks) + FIXED
    assert bound < BYTES * heads * tokens**2 / 2
    assert most_bytes(watched) - most_bytes(plain) <= bound
