"""Training while it is watched: gradients, checkpoints that compute again, autocast, transforms."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import glasshead as gh
from watching.torch.explicit import STATISTICS, bits, check, lower, nothing_is_open, weights

BATCH, LENGTH, HEADS, WIDTH = 2, 7, 3, 15


class CausalSelfAttention(nn.Module):
    """As small language models have it."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dropout, self.last = dropout, []

    def forward(self, x):
        heads = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        query, key, value = heads
        self.last.append((query.detach(), key.detach()))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, **asked):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(WIDTH), CausalSelfAttention(**asked)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 29), nn.GELU(), nn.Linear(29, WIDTH))

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class Model(nn.Module):
    """Two blocks, which may be computed again in the backward pass."""

    def __init__(self, reentrant=None, **asked):
        super().__init__()
        self.blocks = nn.ModuleList(Block(**asked) for _ in range(2))
        self.reentrant = reentrant

    def forward(self, x):
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


NAMES = ["blocks.0.attn", "blocks.1.attn"]


def trained(model, x, steps=2):
    """What some steps of training leave behind."""
    torch.manual_seed(11)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    after = [p.detach().clone() for p in model.parameters()]
    gradients = [p.grad.clone() for p in model.parameters()]
    model.load_state_dict(state)
    return [*losses, *after, *gradients, torch.get_rng_state()]


@pytest.mark.parametrize("reentrant", [None, True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_steps_of_training_stay_as_they_are_and_are_seen_once_each(dropout, reentrant):
    model = Model(reentrant, dropout=dropout).train()
    x = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    alone = trained(model, x)
    for block in model.blocks:
        block.attn.last.clear()
    with gh.watch(model, STATISTICS) as seen:
        watched = trained(model, x)
    assert all(torch.equal(bits(a), bits(b)) for a, b in zip(alone, watched, strict=True))
    assert list(seen) == NAMES
    for name, block in zip(NAMES, model.blocks, strict=True):
        calls = block.attn.last if reentrant is None else block.attn.last[::2]
        assert len(seen[name]) == len(calls) == 2
        for call, (query, key) in zip(seen[name], calls, strict=True):
            check(call, weights(query, key, visible=lower(LENGTH)))
            assert not call.entropy.requires_grad
    assert nothing_is_open()


def test_autocast_stays_and_what_ran_in_bfloat16_is_what_is_seen():
    model = Model().eval()
    x = torch.randn(BATCH, LENGTH, WIDTH)

    def run():
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().square().sum()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    alone = run()
    model.zero_grad()
    with gh.watch(model, STATISTICS) as seen:
        watched = run()
    assert all(torch.equal(bits(a), bits(b)) for a, b in zip(alone, watched, strict=True))
    query, key = model.blocks[0].attn.last[-1]
    assert query.dtype == torch.bfloat16
    check(seen[NAMES[0]], weights(query, key, visible=lower(LENGTH)), tolerance=1e-4)
    assert seen[NAMES[0]].entropy.dtype == torch.float32


def test_a_watch_within_autocast():
    model, x = Model().eval(), torch.randn(BATCH, LENGTH, WIDTH)
    with torch.autocast("cpu", torch.bfloat16), gh.watch(model, STATISTICS) as seen:
        model(x)
    query, key = model.blocks[1].attn.last[-1]
    check(seen[NAMES[1]], weights(query, key, visible=lower(LENGTH)), tolerance=1e-4)


def test_a_gradient_of_a_gradient():
    model = Model().double().eval()
    for block in model.blocks:
        # The kernel has no second derivative; the long way has.
        block.attn.forward = long_way(block.attn)
    x = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)

    def run():
        (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return [
            first.detach(),
            *torch.autograd.grad(first.square().sum(), [*model.parameters()], allow_unused=True),
        ]

    alone = run()
    with gh.watch(model, STATISTICS) as seen:
        watched = run()
    for one, other in zip(alone, watched, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
    assert [len(seen[name]) for name in NAMES] == [1, 1]


def long_way(attention):
    original = type(attention).forward

    def forward(x):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return original(attention, x)

    return forward


def test_a_transform_of_gradients(tmp_path):
    model, x = Model().eval(), torch.randn(BATCH, LENGTH, WIDTH)
    parameters = dict(model.named_parameters())

    def loss(parameters):
        return torch.func.functional_call(model, parameters, (x,)).square().sum()

    alone = torch.func.grad(loss)(parameters)
    with gh.watch(model, STATISTICS) as seen:
        watched = torch.func.grad(loss)(parameters)
    assert all(torch.equal(alone[name], watched[name]) for name in alone)
    query, key = model.blocks[0].attn.last[-1]
    check(seen[NAMES[0]], weights(query, key, visible=lower(LENGTH)))
    seen.save(tmp_path / "seen.safetensors")
    back = gh.Seen.load(tmp_path / "seen.safetensors")[NAMES[0]]
    assert torch.equal(back.entropy, seen[NAMES[0]].entropy)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_is_refused_as_no_call_of_it_is_a_call_of_the_model():
    model, x = Model().eval(), torch.randn(5, BATCH, LENGTH, WIDTH)
    sentence = "watch cannot observe .* under torch.vmap"
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, STATISTICS):
        torch.vmap(model)(x)
    assert nothing_is_open()
