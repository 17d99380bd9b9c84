"""Where ranks share a text, each tells its queries, and all together what one process sees.

PyTorch's ring attention has no kernel of the CPU. Here it goes round with that of the CPU, by the
same code: PyTorch's own loop, merger and load balancing.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.watching import UnseenError
from watching.ranks import RANKS

ring = pytest.importorskip(
    "torch.distributed.tensor.experimental._context_parallel._attention",
    reason="this PyTorch has another context parallel",
)
# The quick sibling is test_watching_shards.py.
pytestmark = pytest.mark.slow

HEADS, KV_HEADS, WIDTH, LENGTH, BATCH = 6, 2, 5, 28, 2
STATISTICS = [gh.Entropy(), gh.Received(), gh.TopK(3), gh.MaxScore(), gh.LogSumExp()]
HALF = LENGTH // (2 * RANKS)
POSITIONS = {
    "causal, balanced": [[0, 3 * HALF], [HALF, 2 * HALF]],
    "causal": [[0], [2 * HALF]],
    "all keys": [[0], [2 * HALF]],
}


class Layer(nn.Module):
    """Attention of a text to itself, with grouped heads."""

    def __init__(self, causal):
        super().__init__()
        self.causal = causal
        self.query = nn.Linear(HEADS * WIDTH, HEADS * WIDTH)
        self.pair = nn.Linear(HEADS * WIDTH, 2 * KV_HEADS * WIDTH)

    def forward(self, x):
        query = self.query(x).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
        key, value = self.pair(x).unflatten(-1, (2, KV_HEADS, WIDTH)).unbind(-3)
        key, value = (
            one.transpose(1, 2).repeat_interleave(HEADS // KV_HEADS, 1) for one in (key, value)
        )
        out = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal, scale=0.7)
        return x + out.transpose(1, 2).flatten(2)


def model(case):
    torch.manual_seed(0)
    return nn.Sequential(Layer(case != "all keys"), Layer(case != "all keys")).double().eval()


def text():
    torch.manual_seed(1)
    return torch.randn(BATCH, LENGTH, HEADS * WIDTH).double()


def on_cpu(operator, args, kwargs):
    """PyTorch's ring attention, with the kernel of the CPU."""
    del operator
    from torch.distributed.tensor import DTensor, Shard

    names = ("query", "key", "value", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | kwargs
    query = given["query"]
    local = (given.pop(name).to_local() for name in names[:3])
    out, logsumexp = ring._templated_ring_attention(
        query.device_mesh.get_group(),
        2,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
        *local,
        **{name: one for name, one in given.items() if name in ("is_causal", "scale")},
    )
    mesh = query.device_mesh
    return DTensor.from_local(out, mesh, [Shard(2)]), DTensor.from_local(
        logsumexp, mesh, [Shard(2)]
    )


def tensors(value):
    return [value] if isinstance(value, torch.Tensor) else list(value)


def values(layer):
    return [x for one in STATISTICS for x in tensors(layer[one])]


def told(layer):
    return [*values(layer), layer.weights.dense()]


def watched(made, x):
    with torch.no_grad(), gh.watch(made, STATISTICS, keep="weights") as seen:
        output = made(x)
    return seen, output


def on_each(rank, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel

    del folder
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    ring.custom_ops[kernel] = on_cpu
    ring._cp_options.convert_to_f32 = False
    mesh = init_device_mesh("cpu", (RANKS,))
    found = {}
    for case in POSITIONS:
        ring._cp_options.enable_load_balance = case == "causal, balanced"
        made, x = model(case), text()
        with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
            with torch.no_grad():
                plain = made(x)
            within, output = watched(made, x)
            refused = refusals(made, x, within)
        y = text()
        with (
            torch.no_grad(),
            gh.watch(made, STATISTICS, keep="weights") as around,
            context_parallel(mesh, buffers=[y], buffer_seq_dims=[1]),
        ):
            made(y)
        whole = within.gather()
        found[case] = {
            "same": torch.equal(output, plain),
            "positions": [call.position for call in within["1"]],
            "queries": [call.queries for call in within["1"]],
            "within": told(whole["1"]),
            "around": told(around.gather()["1"]),
            "texts": len(whole["1"].texts),
            "rollout": gh.rollout(whole),
            "refused": refused,
        }
    found["heads"] = by_heads(mesh)
    return found


class Attention(nn.Module):
    def forward(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def by_heads(mesh):
    """Tensors that are sharded by heads, and where the keys alone are whole."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    def on_each_rank(operator, args, kwargs):
        local = [
            one.to_local()[:, : HEADS // RANKS] if isinstance(one, DTensor) else one for one in args
        ]
        out, logsumexp = operator(*local, **kwargs)
        return tuple(DTensor.from_local(one, mesh, [Shard(1)]) for one in (out, logsumexp))

    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    handlers = DTensor._op_dispatcher._custom_op_handlers
    DTensor._op_dispatcher._custom_op_handlers = {**handlers, kernel: on_each_rank}
    inputs = [distribute_tensor(one, mesh, [Shard(1)]) for one in by_hand()]
    made = Attention()
    with torch.no_grad(), gh.watch(made, STATISTICS, keep="weights") as seen:
        made(*inputs)
    inputs[1], refused = distribute_tensor(by_hand()[1], mesh, [Replicate()]), None
    try:
        with torch.no_grad(), gh.watch(made, STATISTICS):
            made(*inputs)
    except UnseenError as error:
        refused = str(error)
    DTensor._op_dispatcher._custom_op_handlers = handlers
    return seen[""][0].heads, told(seen.gather()[""]), refused


def by_hand():
    torch.manual_seed(2)
    return [torch.randn(BATCH, HEADS, 7, WIDTH).double() for _ in range(3)]


def refusals(made, x, seen):
    functions = {
        "rollout": lambda: gh.rollout(seen),
        "intervene": lambda: intervened(made, x),
        "mask": lambda: masked(x),
    }
    said = {}
    for name, function in functions.items():
        try:
            function()
        except (ValueError, UnseenError) as error:
            said[name] = str(error)
    return said


def intervened(made, x):
    with torch.no_grad(), gh.intervene(made, {"1": gh.ZeroAblation(heads=[0])}):
        made(x)


class Crossing(nn.Module):
    def forward(self, x):
        query = x.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
        key = query[..., : query.shape[-2] // 2, :]
        return F.scaled_dot_product_attention(query, key, key)


def masked(x):
    balance, ring._cp_options.enable_load_balance = ring._cp_options.enable_load_balance, False
    try:
        made = Crossing()
        with torch.no_grad(), gh.watch(made, [gh.Entropy()]):
            made(x)
    finally:
        ring._cp_options.enable_load_balance = balance


@pytest.fixture(scope="module")
def ranks(of_ranks, tmp_path_factory):
    return of_ranks(on_each, tmp_path_factory.mktemp("ranks"))


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("order", ["within", "around"])
@pytest.mark.parametrize("case", POSITIONS)
def test_all_ranks_together_see_what_one_process_sees(ranks, case, order):
    seen, _ = watched(model(case), text())
    for rank in ranks:
        assert_close(rank[case][order], told(seen["1"]))
        assert_close(rank[case]["rollout"], gh.rollout(seen))


@pytest.mark.parametrize("case", POSITIONS)
def test_each_rank_tells_where_its_queries_stand(ranks, case):
    for rank, positions in zip(ranks, POSITIONS[case], strict=True):
        found = rank[case]
        assert found["same"]
        assert found["positions"] == positions
        assert found["queries"] == [LENGTH // RANKS // len(positions)] * len(positions)
        assert found["texts"] == 1


def test_what_takes_all_queries_refuses_a_part(ranks):
    for rank in ranks:
        assert rank["causal"]["refused"]["rollout"] == (
            "rollout needs all queries of an attention, but this rank computes only a part of "
            "them for '0'. Give it seen.gather(), which all ranks call."
        )


def test_interventions_and_other_texts_are_refused(ranks):
    for rank in ranks:
        said = rank["all keys"]["refused"]
        assert said["intervene"] == (
            "intervene changes attention whose inputs are plain tensors, but these are spread over "
            "ranks, as by context parallel. Run the model without it."
        )
        assert said["mask"] == (
            "watch observes only self-attention without a mask if the length is sharded, but "
            "Crossing at 'the model' has a mask or attends to another text. Omit it with layers=."
        )


def test_tensors_that_are_sharded_by_heads_are_gathered(ranks):
    made = Attention()
    with torch.no_grad(), gh.watch(made, STATISTICS, keep="weights") as seen:
        made(*by_hand())
    for place, rank in enumerate(ranks):
        heads, found, refused = rank["heads"]
        assert heads == tuple(range(3 * place, 3 * place + 3))
        assert_close(found, told(seen[""]))
        assert refused == (
            "watch observes attention of DTensors whose queries, keys and values are sharded "
            "alike, by batch, heads or length in equal parts, but the tensors of Attention at "
            "'the model' are not. Redistribute them so, or omit it with layers=."
        )
