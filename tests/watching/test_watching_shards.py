"""What a rank sees of the heads that ranks share, in a process group that exchanges nothing."""

from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.watching import UnseenError

RANKS, HEADS, WIDTH = 2, 6, 5
FAKE = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
STATISTICS = [gh.Entropy(), gh.Received(), gh.TopK(3)]


class Attention(nn.Module):
    """Attention with a projection for the queries and one for the keys, which are the values."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.query, self.key = (nn.Linear(7, HEADS * WIDTH, dtype=torch.float64) for _ in range(2))

    def forward(self, x):
        query, key = (
            project(x).unflatten(-1, (-1, WIDTH)).transpose(1, 2)
            for project in (self.query, self.key)
        )
        return F.scaled_dot_product_attention(query, key, key).transpose(1, 2).flatten(2)


@contextmanager
def mesh_of(rank):
    """The device mesh of a rank whose group exchanges nothing."""
    from torch.distributed.device_mesh import init_device_mesh

    distributed.init_process_group("fake", store=FAKE.FakeStore(), rank=rank, world_size=RANKS)
    try:
        yield init_device_mesh("cpu", (RANKS,))
    finally:
        distributed.destroy_process_group()


def sharded(rank, mesh):
    """The model with a rank's share of its weights."""
    from torch.distributed.tensor import DTensor, Shard

    model = Attention()
    for project in (model.query, model.key):
        for name, whole in [*project.named_parameters()]:
            own = whole.detach().chunk(RANKS)[rank]
            made = DTensor.from_local(own, mesh, [Shard(0)], run_check=False)
            project.register_parameter(name, nn.Parameter(made))
        # As PyTorch's own plan of tensor parallel has it.
        project.forward = lambda x, project=project: F.linear(
            x, project.weight.to_local(), project.bias.to_local()
        )
    return model


def watched(model, x, **options):
    with torch.no_grad(), gh.watch(model, STATISTICS, keep="weights", **options) as seen:
        model(x)
    return seen


class SentError(Exception):
    """Ends a gathering for which ranks are missing."""


def gathered(seen, sent):
    """Gather what the ranks before this one have sent, and what it sends."""

    def exchange(told, own, group):
        sent.append(own)
        if len(sent) < RANKS:
            raise SentError
        told[:] = sent

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "all_gather_object", exchange)
        return seen.gather()


@pytest.mark.parametrize("heads", [None, [5, 0], [4]])
def test_the_heads_of_a_rank_and_of_all(heads):
    x, requested = torch.randn(2, 11, 7).double(), range(HEADS) if heads is None else heads
    expected, sent = watched(Attention(), x, heads=heads)[""], []
    for rank in range(RANKS):
        with mesh_of(rank) as mesh:
            seen = watched(sharded(rank, mesh), x, heads=heads)
            own = [head for head in sorted(requested) if head // 3 == rank]
            assert sorted(seen[""][0].heads) == own
            with nullcontext() if rank else pytest.raises(SentError):
                found = gathered(seen, sent)[""]
    for name, value in expected[0].values.items():
        torch.testing.assert_close(found[0].values[name], value)
    torch.testing.assert_close(found.weights.dense(), expected.weights.dense())
    assert found[0].shards == ()


def test_what_takes_all_heads_refuses_those_of_a_rank():
    with mesh_of(1) as mesh:
        seen = watched(sharded(1, mesh), torch.randn(2, 11, 7).double())
        with pytest.raises(ValueError, match=r"rollout needs all heads .*Pass seen\.gather\(\)"):
            gh.rollout(seen)


def test_weights_that_are_sharded_in_another_way_are_refused():
    with mesh_of(0) as mesh:
        model = sharded(0, mesh)
        del model.query
        model.query = nn.Linear(7, HEADS * WIDTH // RANKS, dtype=torch.float64)
        with pytest.raises(UnseenError, match=r"in another way\. Shard them with Colwise"):
            watched(model, torch.randn(2, 11, 7).double())


@pytest.mark.parametrize("placed", ["by heads", "unlike"])
def test_tensors_that_are_sharded(placed):
    from torch.distributed.tensor import DTensor, Replicate, Shard

    class Sharded(nn.Module):
        def forward(self, *heads):
            return F.scaled_dot_product_attention(*heads)

    whole = [torch.randn(2, HEADS, 7, WIDTH).double() for _ in range(3)]
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    handlers = DTensor._op_dispatcher._custom_op_handlers
    with mesh_of(1) as mesh, pytest.MonkeyPatch.context() as patch:

        def on_this_rank(operator, args, kwargs):
            found = operator(*(x.to_local()[:, :3] for x in args[:3]), *args[3:], **kwargs)
            return tuple(DTensor.from_local(x, mesh, [Shard(1)], run_check=False) for x in found)

        patch.setattr(
            DTensor._op_dispatcher, "_custom_op_handlers", {**handlers, kernel: on_this_rank}
        )
        places = [Shard(1), Replicate() if placed == "unlike" else Shard(1), Shard(1)]
        inputs = [
            DTensor.from_local(
                x if place.is_replicate() else x[:, 3:], mesh, [place], run_check=False
            )
            for x, place in zip(whole, places, strict=True)
        ]
        if placed == "unlike":
            with pytest.raises(UnseenError, match="are sharded alike, by batch, heads or length"):
                watched_of(Sharded(), inputs)
            return
        seen = watched_of(Sharded(), inputs)[""]
    expected = watched_of(Sharded(), whole)[""]
    assert seen[0].heads == (3, 4, 5)
    torch.testing.assert_close(seen.entropy, expected.entropy[:, 3:])


def watched_of(model, inputs):
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        model(*inputs)
    return seen
