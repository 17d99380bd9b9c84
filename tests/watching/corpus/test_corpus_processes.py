"""Processes that read a share each say together what one says that reads all."""

import socket

import pytest
import torch
from torch import distributed, multiprocessing

import corpora
import glasshead as gh
from corpora import HEADS, LENGTHS, Model, assert_equal, by_hand, documents, read

COUNT = 2
# Where the second process begins; at the end it reads nothing.
CUTS = (3, 5, len(LENGTHS))


def told(result):
    return {layer: dict(result[layer]) for layer in result}, result.documents


def shared(rank):
    """What is computed where each has read some of the documents."""
    found = []
    for cut in CUTS:
        some, corpus = documents(), corpora.corpus()
        read(corpus, Model(), some[cut:] if rank else some[:cut])
        found.append(told(corpus.compute()))
    return found


def layers_apart(rank):
    """Where each has seen one layer alone; and what is its own again, after that."""
    model, some, corpus = Model(), documents((5, 7)), corpora.corpus()
    with torch.no_grad(), gh.watch(model, corpus.statistics, layers=list(HEADS)[rank]) as seen:
        model(some[0][None])
    corpus.update(seen)
    both = told(corpus.compute())
    own = corpora.corpus(sync_on_compute=False)
    own.merge_state(corpus)
    own._update_count = 1
    return both, told(own.compute())


def refusals(rank):
    """What is not alike in both, or nowhere."""
    said = []
    maps = gh.CorpusStatistics([gh.PooledMap(2, 2)])
    read(maps, Model(), documents((5, 7))[rank : rank + 1])
    empty = gh.CorpusStatistics([gh.Received(), gh.MaxScore()])
    empty._update_count = 1
    for corpus in (maps, empty):
        try:
            corpus.compute()
        except ValueError as error:
            said.append(str(error))
    return said


def work(rank, port, folder):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=COUNT)
    try:
        torch.save([each(rank) for each in (shared, layers_apart, refusals)], folder / f"{rank}.pt")
    finally:
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each process says of all of it, as starting some takes longer than their work."""
    folder = tmp_path_factory.mktemp("processes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(work, (port, folder), COUNT)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(COUNT)]


@pytest.mark.parametrize("case", range(len(CUTS)))
def test_they_say_what_one_says(found, case):
    alone = corpora.corpus()
    read(alone, Model(), documents())
    right = alone.compute()
    for cases, _, _ in found:
        values, count = cases[case]
        assert_equal(values, {layer: right[layer] for layer in right}, atol=1e-12, rtol=1e-12)
        assert count == len(LENGTHS)


def test_layers_that_one_has_not_seen_are_those_of_the_other(found):
    right = by_hand(Model(), documents((5, 7))[:1])
    for name, (_, (both, own), _) in zip(HEADS, found, strict=True):
        assert_equal(both[0], right)
        assert_equal(own[0], {name: right[name]})


def test_what_does_not_fit_is_refused_by_all(found):
    for _, _, (maps, empty) in found:
        assert "'first' had one of 5 tokens and one of 7 tokens" in maps
        assert "there were none: update first" in empty
