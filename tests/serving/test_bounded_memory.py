"""A watch holds no more than what waits and what is not read, whatever the engine has served."""

import gc
import random
import warnings
import weakref

import pytest
import torch

import glasshead as gh
from glasshead.serving.engine_watcher import EngineWatcher, ServedChoices
from glasshead.serving.plugin import register
from glasshead.serving.watch_vllm import watch_vllm
from serving.fake_engine import CPUAttentionBackendImpl, FakeLLM, FakeRunner

REQUESTS = 10_000


def layers(count=2):
    return [CPUAttentionBackendImpl(4, 2, 6) for _ in range(count)]


def held() -> tuple[int, int]:
    """Return how many objects there are, and how many bytes tensors hold."""
    gc.collect()
    objects = gc.get_objects()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [one for one in objects if type(one) is torch.Tensor]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in tensors}
    return len(objects), sum(one.nbytes() for one in storages.values())


def serve(runner, watcher, requests):
    """Serve requests, five at a time: some are preempted, aborted, or fail, half are read."""
    chance, going, finished, again = random.Random(7), {}, [], {}
    for number in range(requests):
        counts = dict.fromkeys(going, 1) | again
        preempted = [chance.choice([*going])] if going and number % 17 == 0 else []
        again = {one: runner.requests[one].computed for one in preempted}
        for one in preempted:
            del counts[one]
        counts[f"r{number}"] = chance.choice([1, 2, 7, 13])
        if number % 101 == 0:
            # A token that the watch has not seen.
            for one in [*going][:1]:
                watcher.requests[one].end -= 3
        runner.step(counts, finished=finished, preempted=preempted)
        for one in finished:
            if int(one[1:]) % 2 and one in watcher.requests:
                watcher.taken(one, whole=True)
        going[f"r{number}"] = chance.choice([1, 2, 3, 5, 11])
        finished = [one for one in [*going][:-4] if one not in again]
        finished += [one for one in [*going][-4:] if going[one] == 1 and one not in again]
        going = {one: left - 1 for one, left in going.items() if one not in finished}
        yield number + 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_grows_over_ten_thousand_requests():
    runner = FakeRunner(layers(), records=False)
    statistics = {"entropy": gh.Entropy(), "received": gh.Received()}
    budget = 200_000
    watcher = EngineWatcher(runner, ServedChoices(statistics, budget=budget))
    marks = {}
    for served in serve(runner, watcher, REQUESTS):
        if served in (REQUESTS // 5, REQUESTS):
            marks[served] = held()
    first, last = marks.values()
    # What waits differs from step to step.
    assert last[0] - first[0] < REQUESTS // 20
    assert last[1] - first[1] < budget // 10
    assert sum(one.nbytes for one in watcher.requests.values() if one.ended) <= budget
    assert REQUESTS // 2 - len(watcher.requests) <= watcher.forgotten <= REQUESTS // 2
    # Those of which a token was missed are not all forgotten yet.
    errors = {one.error for one in watcher.requests.values()} - {None}
    assert any("were not observed" in one for one in errors)
    watcher.stop()


def test_a_token_that_waits_keeps_no_prompt_of_another_request():
    runner = FakeRunner(layers(), records=False)
    watcher = EngineWatcher(runner, ServedChoices({"entropy": gh.Entropy()}))
    runner.step({"a": 5})
    before = held()[1]
    for number in range(7):
        # Its blocks are given back with the next one.
        runner.step({"a": 1, f"p{number}": 71}, finished=[f"p{number - 1}"] if number else [])
    waiting = watcher.requests["a"].waiting
    assert sum(last - first for _, first, last in waiting) == 7
    # A query of 24 numbers for each of two layers; the prompt's first and last are compared too.
    storages = {
        copy.data_ptr(): copy.untyped_storage().nbytes() for one in waiting for copy in one.copies
    }
    assert sum(storages.values()) == 7 * 3 * 2 * 24 * 4
    assert held()[1] - before < 7 * 71 * 2 * 24 * 4
    watcher.stop()


class DeadError(RuntimeError):
    pass


def die(*_args, **_kwargs):
    raise DeadError


@pytest.mark.parametrize("ending", ["alone", "raises", "dies"])
def test_a_watch_that_has_ended_keeps_no_engine(ending):
    # It imports vLLM, and errors that are caught there for good hold the frames that import it.
    register()
    runner = FakeRunner(layers())
    llm = FakeLLM(runner)
    known = [weakref.ref(one) for one in (llm, runner, runner.get_model())]

    try:
        with watch_vllm(llm, [gh.Entropy()], keep="weights") as seen:
            runner.step({"a": 7})
            if ending == "raises":
                die()
            if ending == "dies":
                llm.collective_rpc = die
    except DeadError:
        assert ending != "alone"
    else:
        assert ending == "alone"
    del llm, runner
    gc.collect()
    assert [one() for one in known] == [None, None, None]
    if ending != "dies":
        assert seen["a"]["layers.1.self_attn"].entropy.shape == (1, 4, 7)
