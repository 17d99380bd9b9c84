"""Whose calls a watch sees, and what another owner of a thread, a task or a function leaves."""

import asyncio
import contextvars
import functools
import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as modes_in_use

import glasshead as gh
from glasshead.watching.interception.circumstances import OpenBlocks
from glasshead.watching.interception.opening import PATCHES
from glasshead.watching.interception.session import Patch
from watching.torch.explicit import nothing_is_open


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


MODEL = Attention()


def in_own_thread(test):
    """Run a test in a thread without an event loop; a browser's tests have one in the main one."""

    @functools.wraps(test)
    def run():
        with ThreadPoolExecutor(1) as pool:
            pool.submit(test).result(60)

    return run


def text(queries: int = 5) -> Tensor:
    return torch.randn(1, 2, queries, 3)


def queries(seen) -> list[int]:
    return [call.queries for one in seen.values() for call in one]


async def requested(length: int, times: int) -> list[int]:
    with gh.watch(MODEL, [gh.Entropy()]) as seen:
        for _ in range(times):
            MODEL(text(length))
            await asyncio.sleep(0)
    return queries(seen)


async def unwatched(length: int, times: int) -> None:
    for _ in range(times):
        MODEL(text(length))
        await asyncio.sleep(0)


@in_own_thread
def test_each_task_has_the_calls_of_its_own():
    async def main():
        return await asyncio.gather(requested(5, 2), unwatched(7, 5), requested(11, 3))

    assert asyncio.run(main()) == [[5] * 2, None, [11] * 3]
    assert nothing_is_open()


@in_own_thread
def test_a_task_that_a_watched_task_starts_is_seen():
    async def main():
        with gh.watch(MODEL, [gh.Entropy()]) as seen:
            inner = await asyncio.gather(requested(5, 1), unwatched(7, 1))
        return inner[0], queries(seen)

    assert asyncio.run(main()) == ([5], [5, 7])


@in_own_thread
def test_an_ablation_changes_the_calls_of_its_own_task():
    x = text()
    alone = MODEL(x)

    async def ablated():
        with gh.ablate(MODEL, {"": [1]}):
            await asyncio.sleep(0)
            return MODEL(x)

    async def beside():
        await asyncio.sleep(0)
        return MODEL(x)

    async def main():
        return await asyncio.gather(ablated(), beside())

    changed, same = asyncio.run(main())
    assert torch.equal(same, alone)
    assert torch.equal(changed[:, 0], alone[:, 0])
    assert not changed[:, 1].any()
    assert nothing_is_open()


@in_own_thread
def test_a_block_whose_task_has_ended_goes_on_in_the_next_as_in_a_notebook():
    loop, watch = asyncio.new_event_loop(), gh.watch(MODEL, [gh.Entropy()])

    async def cell(run):
        return run()

    seen = loop.run_until_complete(cell(watch.__enter__))
    loop.run_until_complete(cell(lambda: MODEL(text())))
    loop.run_until_complete(cell(lambda: watch.__exit__(None, None, None)))
    loop.close()
    assert queries(seen) == [5]
    assert nothing_is_open()


def test_contexts_outside_of_tasks_have_their_own_too():
    contexts = [contextvars.copy_context() for _ in range(2)]
    watches = [gh.watch(MODEL, [gh.Entropy()]) for _ in range(2)]
    seen = [one.run(watch.__enter__) for one, watch in zip(contexts, watches, strict=True)]
    contexts[0].run(MODEL, text(5))
    contexts[1].run(MODEL, text(7))
    for one, watch in zip(contexts, watches, strict=True):
        one.run(watch.__exit__, None, None, None)
    assert [queries(one) for one in seen] == [[5], [7]]
    assert nothing_is_open()


def elsewhere(run, *given) -> None:
    thread = threading.Thread(target=run, args=given)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("opened", [gh.watch, gh.ablate])
def test_a_block_that_another_thread_closes_leaves_the_first_with_its_next_operators(
    opened, passes
):
    blocks = [opened(MODEL, [gh.Entropy()] if opened is gh.watch else {"": [1]}) for _ in range(2)]
    for block in blocks:
        block.__enter__()
    for _ in range(passes):
        MODEL(text())
    for block in blocks:
        elsewhere(block.__exit__, None, None, None)
    for _ in range(2):
        torch.add(text(), text())
        MODEL(text())
    # The first call of a function after it.
    len([])
    assert not modes_in_use()
    assert sys.getprofile() is None
    with gh.watch(MODEL, [gh.Entropy()]) as seen:
        MODEL(text(7))
    assert queries(seen) == [7]
    assert nothing_is_open()


class Holder:
    pass


def abandoned(block) -> None:
    """Leave a suspended block to the garbage collector."""

    def steps():
        with block:
            yield MODEL(text())

    holder = Holder()
    holder.itself, holder.steps = holder, steps()
    next(holder.steps)


@pytest.mark.parametrize(
    ("home", "name"),
    [(Patch, "open"), (type(PATCHES), "restore"), (OpenBlocks, "add"), (OpenBlocks, "remove")],
)
def test_the_collector_closes_a_block_while_another_is_opened_or_closed(home, name, monkeypatch):
    original, done = getattr(home, name), []

    def collecting(self, *given):
        gc.collect(0)
        original(self, *given)

    def run():
        abandoned(gh.ablate(MODEL, {"": [1]}))
        monkeypatch.setattr(home, name, collecting)
        with gh.watch(MODEL, [gh.Entropy()]) as seen:
            MODEL(text())
        done.append(queries(seen))

    gc.disable()
    try:
        # In a thread, which a block that waits for itself does not end.
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(30)
    finally:
        gc.enable()
    assert done == [[5]]
    assert nothing_is_open()


@pytest.mark.parametrize("wraps", [functools.wraps, lambda own: lambda function: function])
def test_another_library_that_undoes_its_patch_after_the_block_puts_ours_back_once(wraps):
    original = F.scaled_dot_product_attention
    for _ in range(3):
        with gh.watch(MODEL, [gh.Entropy()]) as seen:
            own = F.scaled_dot_product_attention

            @wraps(own)
            def theirs(*given, own=own, **named):
                return own(*given, **named)

            patch = mock.patch.object(F, "scaled_dot_product_attention", theirs)
            patch.start()
            MODEL(text())
        assert F.scaled_dot_product_attention is theirs
        patch.stop()
        assert F.scaled_dot_product_attention.__wrapped__ is original
        assert queries(seen) == [5]
    MODEL(text())
    assert nothing_is_open()


def test_another_library_that_patches_before_the_block_and_undoes_it_within_leaves_its_original():
    original = F.scaled_dot_product_attention
    patch = mock.patch.object(F, "scaled_dot_product_attention", original.__call__)
    patch.start()
    with gh.watch(MODEL, [gh.Entropy()]) as seen:
        MODEL(text(5))
        patch.stop()
        MODEL(text(7))
    assert queries(seen) == [5, 7]
    assert nothing_is_open()
