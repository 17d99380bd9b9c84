"""Blocks within each other, after each other and in several threads, whatever ends them."""

import copy
import gc
import threading
import weakref
from contextlib import ExitStack

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from watching.torch.explicit import nothing_is_open

WIDTH = 6


class Attention(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.torchs = Attention(), nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.rule = gh.Attention()

    def forward(self, x, error=None):
        x = self.own(x)
        if error:
            raise error
        x, _ = self.torchs(x, x, x)
        return self.rule(x, x, x)


def text(length=5):
    return torch.randn(2, length, WIDTH)


def counted(seen):
    return [len(watched) for watched in seen.values()]


def test_blocks_within_each_other_each_see_all():
    model, other = Model(), Model()
    with gh.watch(model, [gh.Entropy()]) as outer:
        model(text())
        with gh.watch(model, [gh.MaxWeight()]) as inner, gh.watch(other, [gh.Entropy()]) as beside:
            model(text(7))
            other(text(3))
        assert not nothing_is_open()
        model(text(3))
    assert counted(outer) == [3, 3, 3]
    assert [call.queries for call in outer["own"]] == [5, 7, 3]
    assert counted(inner) == counted(beside) == [1, 1, 1]
    assert inner["own"].max_weight.shape[-1] == 7
    assert beside["own"].entropy.shape[-1] == 3
    assert nothing_is_open()


def test_an_inner_block_that_fails_leaves_the_outer_one_watching():
    model = Model()
    with gh.watch(model, [gh.Entropy()]) as outer:
        with pytest.raises(ZeroDivisionError), gh.watch(model, [gh.Entropy()]) as inner:
            model(text(), ZeroDivisionError())
        with (
            pytest.raises(RuntimeError, match="watch observed no attention"),
            gh.watch(model, [gh.Entropy()]),
        ):
            pass
        model(text())
    assert counted(inner) == [1]
    assert counted(outer) == [2, 1, 1]
    assert nothing_is_open()


@pytest.mark.parametrize("where", ["model", "block"])
def test_after_an_error_nothing_is_left_open_and_nothing_is_hidden(where):
    model = Model()
    before = gh.Attention.forward
    with pytest.raises(ZeroDivisionError), gh.watch(model, [gh.Entropy()]) as seen:
        model(text(), ZeroDivisionError()) if where == "model" else 1 // 0
    assert nothing_is_open()
    assert gh.Attention.forward is before
    assert counted(seen) == ([] if where == "block" else [1])
    model(text())
    assert counted(seen) == ([] if where == "block" else [1])


def test_blocks_may_end_in_another_order_than_they_began():
    model = Model()
    first, second = ExitStack(), ExitStack()
    seen_first = first.enter_context(gh.watch(model, [gh.Entropy()]))
    seen_second = second.enter_context(gh.watch(model, [gh.Entropy()]))
    model(text())
    first.close()
    model(text())
    second.close()
    assert (counted(seen_first), counted(seen_second)) == ([1] * 3, [2] * 3)
    assert nothing_is_open()


def test_a_function_that_somebody_else_replaces_stays_theirs():
    own = F.scaled_dot_product_attention
    model = Model()

    def theirs(*inputs, **named):
        return own(*inputs, **named)

    try:
        with gh.watch(model, [gh.Entropy()]):
            model(text())
            F.scaled_dot_product_attention = theirs
        assert F.scaled_dot_product_attention is theirs
    finally:
        F.scaled_dot_product_attention = own
    assert nothing_is_open()


def test_what_is_bound_within_a_block_may_be_called_after_it():
    model = Model()
    with gh.watch(model, [gh.Entropy()]) as first:
        bound = F.scaled_dot_product_attention
        model(text())
    model.own.forward = lambda x: bound(x, x, x)
    expected = F.scaled_dot_product_attention(*[text().fill_(0.5)] * 3)
    assert torch.equal(bound(*[text().fill_(0.5)] * 3), expected)
    with gh.watch(model, [gh.Entropy()]) as second:
        model(text())
    assert counted(first) == counted(second) == [1, 1, 1]


def in_threads(*jobs):
    """Run each in a thread of its own, and hand on what they raise."""
    errors = []

    def guarded(job):
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_what_another_thread_runs_is_not_seen_and_the_error_says_so():
    model = Model()
    sentence = r"watch observed no attention of Model, which ran in another thread\. Run it"
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]) as seen:
        in_threads(lambda: model(text()))
    assert not len(seen)
    assert nothing_is_open()


def test_a_part_without_attention_that_ran_here_is_told_so_whatever_ran_elsewhere():
    model = nn.ModuleList([Model(), nn.Linear(3, 5)])

    def run():
        in_threads(lambda: model[0](text()))
        model[1](torch.randn(2, 3))

    sentence = "^watch observed no attention of ModuleList, which ran: "
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]):
        run()


def test_two_threads_watch_at_the_same_time_and_end_one_after_the_other():
    model = Model()
    both, first_done = threading.Barrier(2, timeout=30), threading.Event()
    found = {}

    def first():
        with gh.watch(model, [gh.Entropy()]) as seen:
            both.wait()
            model(text(5))
            both.wait()
        found["first"] = seen
        first_done.set()

    def second():
        with gh.watch(model, [gh.MaxWeight()]) as seen:
            both.wait()
            model(text(7))
            both.wait()
            assert first_done.wait(30)
            # The functions that were replaced for both are still so.
            assert not nothing_is_open()
            model(text(3))
        found["second"] = seen

    in_threads(first, second)
    assert nothing_is_open()
    assert [call.queries for call in found["first"]["own"]] == [5]
    assert [call.queries for call in found["second"]["own"]] == [7, 3]
    assert counted(found["second"]) == [2, 2, 2]


def test_a_thread_may_go_on_after_the_one_that_was_first():
    model = Model()
    opened, closed = threading.Event(), threading.Event()

    def other():
        with gh.watch(model, [gh.Entropy()]) as seen:
            opened.set()
            assert closed.wait(30)
            model(text())
        assert counted(seen) == [1, 1, 1]

    def first():
        assert opened.wait(30)
        with gh.watch(model, [gh.Entropy()]):
            model(text())
        closed.set()

    in_threads(other, first)
    assert nothing_is_open()


class Steps:
    """A language model that is fed a token at a time, watched."""

    def __init__(self):
        torch.manual_seed(0)
        config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=3)
        self.model = gh.LanguageModel(config).eval()
        self.tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])

    def run(self, after=lambda seen, place: None):
        """Feed the tokens, and give the result to `after` in the block after each."""
        cache = self.model.new_cache()
        with torch.no_grad(), gh.watch(self.model, [gh.Entropy(), gh.Received()]) as seen:
            for place, token in enumerate(self.tokens[0]):
                self.model(token[None, None], cache=cache)
                after(seen, place)
        return seen


def test_what_was_seen_is_read_within_the_block():
    steps, read = Steps(), []
    whole = steps.run()
    watched = []

    def within(seen, place):
        # A layer that was asked for once goes on.
        watched.extend(seen.values() if place == 0 else [])
        read.append([(one.entropy.clone(), one[-1].received.clone()) for one in watched])

    steps.run(within)
    for place, layers in enumerate(read):
        for (entropy, received), one in zip(layers, whole.values(), strict=True):
            assert torch.equal(entropy, one.entropy[..., : place + 1])
            assert torch.equal(received, one[place].received)


def test_what_was_seen_so_far_is_copied():
    steps, copies = Steps(), []
    whole = steps.run(lambda seen, place: copies.append(copy.deepcopy(seen["blocks.1.attention"])))
    for place, one in enumerate(copies):
        assert len(one) == place + 1
        expected = whole["blocks.1.attention"].entropy[..., : place + 1]
        assert torch.equal(one.entropy, expected)


def test_what_was_seen_is_read_in_another_thread():
    steps = Steps()
    whole, read = steps.run(), []

    def elsewhere(seen, place):
        thread = threading.Thread(target=lambda: read.append(seen["blocks.2.attention"].entropy))
        thread.start()
        thread.join()

    seen = steps.run(elsewhere)
    assert [len(one) for one in seen.values()] == [7] * 3
    expected = whole["blocks.2.attention"].entropy
    assert torch.equal(read[4], expected[..., :5])


def test_what_was_seen_before_an_error_is_kept():
    steps, kept = Steps(), []

    def ends(seen, place):
        kept[:] = [seen]
        if place == 4:
            raise KeyError(place)

    whole = steps.run()
    with pytest.raises(KeyError):
        steps.run(ends)
    for name, one in kept[0].items():
        assert len(one) == 5
        assert torch.equal(one.entropy, whole[name].entropy[..., :5])
    assert nothing_is_open()


@pytest.mark.parametrize("keep", [None, "weights", "context"])
def test_a_finished_watch_does_not_keep_the_model_alive(keep):
    model = Model()
    with gh.watch(model, [gh.Entropy()], keep=keep) as seen:
        model(text())
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert seen["own"].entropy.isfinite().all()
