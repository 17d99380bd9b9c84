"""What runs on a GPU, tested where there is one.

Without a CUDA device each test is skipped. What only follows the device of a model is in
test_on_each_device.py.
"""

import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import glasshead as gh
from glasshead.engines import TRITON
from glasshead.engines.reference import by_rows
from glasshead.statistics.reductions import LogSum
from scripts import ROOT, script

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

TOLERANCE = {torch.float32: 3e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
STATISTICS = [
    gh.LogSumExp(),
    gh.MaxWeight(),
    gh.Entropy(),
    gh.Received(),
    gh.MeanDistance(),
    gh.MassOn([0]),
    gh.PooledMap(3, 5),
    gh.DistanceHistogram([0, 3, 40]),
]


def inputs(dtype, *, queries=259, keys=307, kv_heads=2, requires_grad=False):
    shapes = ((2, 4, queries, 64), (2, kv_heads, keys, 64), (2, kv_heads, keys, 64))
    generator = torch.Generator(DEVICE).manual_seed(3)
    made = [torch.randn(shape, generator=generator, device=DEVICE) for shape in shapes]
    return [x.to(dtype).requires_grad_(requires_grad) for x in made]


def inputs_of(kernel, dtype):
    """Query heads share keys, which the efficient kernel of PyTorch refuses."""
    kv_heads = 4 if kernel == "efficient" else 2
    return inputs(dtype, queries=307, kv_heads=kv_heads, requires_grad=True)


def assert_statistics(seen, trace, exact=1e-4):
    for name, statistic in seen.statistics.items():
        expected = statistic.of(trace).detach()
        torch.testing.assert_close(
            seen[name], expected, rtol=exact, atol=exact, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_fused_engine_by_each_kernel(kernel, dtype):
    """Value and gradient of the reference, and, of a kernel that tells its logsumexp, that too."""
    if dtype == torch.float32 and kernel in ("flash", "cuDNN"):
        pytest.skip(f"{kernel} takes half precision")
    x = inputs_of(kernel, dtype)
    exact = [one.detach().float().requires_grad_() for one in x]
    attention = gh.Attention(mask=gh.causal(), engine="fused")
    with sdpa_kernel(KERNELS[kernel]):
        seen = attention.observe(*x, [gh.LogSumExp()])
    trace = gh.Attention(mask=gh.causal()).trace(*exact)
    upstream = torch.linspace(-1, 1, trace.context.numel(), device=DEVICE).view_as(trace.context)
    found = torch.autograd.grad(seen.context, x, upstream.to(dtype))
    expected = torch.autograd.grad(trace.context, exact, upstream)
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(seen.context.float(), trace.context, rtol=tolerance, atol=tolerance)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.float(), other, rtol=20 * tolerance, atol=20 * tolerance)
    lse = gh.LogSumExp().of(trace).detach()
    torch.testing.assert_close(seen.log_sum_exp, lse, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mask", [None, gh.causal(), gh.padding([0, 211]), gh.window(9)], ids=str)
@pytest.mark.parametrize("gradient", [False, True])
def test_observe_beside_the_fused_kernel(mask, gradient):
    """By the Triton kernel, in bfloat16, with the kernel's own logsumexp and without."""
    x = inputs(torch.bfloat16, requires_grad=gradient)
    attention = gh.Attention(mask=mask, engine="fused")
    seen = attention.observe(*x, STATISTICS)
    assert torch.equal(seen.context, attention(*x))
    assert_statistics(seen, gh.Attention(mask=mask).trace(*x))
    plan = attention.plan(*[one.detach() for one in x], statistics=STATISTICS)
    assert plan.statistics.startswith(f"{TRITON.name}: " if _has_triton() else "blocks of rows")


def _has_triton():
    x = [one.detach() for one in inputs(torch.bfloat16)]
    return TRITON.refusal(gh.Attention().problem(*x)) is None


def test_blocks_of_rows():
    """What the Triton kernel refuses: float64, and statistics with a gradient."""
    x = [one.double().requires_grad_() for one in inputs(torch.float32)]
    attention = gh.Attention(mask=gh.causal(), engine="fused")
    assert_statistics(attention.observe(*x, STATISTICS), attention.trace(*x), exact=1e-9)
    entropy = attention.observe(*x, [gh.Entropy()], gradient=True).entropy
    found = torch.autograd.grad(entropy.sum(), x[:2])
    expected = torch.autograd.grad(gh.Entropy().of(attention.trace(*x)).sum(), x[:2])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "mask", [gh.causal() & gh.padding([3, 211]), gh.documents([0, 1, 0, 2] * 76 + [1] * 3)], ids=str
)
def test_kernel_and_rows_agree(mask):
    if not _has_triton():
        pytest.skip("the Triton engine is refused here")
    problem = gh.Attention(mask=mask).problem(*inputs(torch.bfloat16))
    reductions = [one for each in STATISTICS for one in each.reductions(problem)]
    for ours, theirs in zip(
        TRITON.reduce(problem, reductions), by_rows(problem, reductions), strict=True
    ):
        for one, other in zip(ours, theirs, strict=True):
            if one.is_floating_point():
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_lazy_weights():
    query, key, _ = inputs(torch.bfloat16)
    attention = gh.Attention(mask=gh.causal())
    W, P = attention.weights(query, key), attention.trace(query, key, key).weights
    right, left = torch.randn(307, 11, device=DEVICE), torch.randn(259, 3, device=DEVICE)
    for found, expected in (
        (W[..., 31:67, 5:300], P[..., 31:67, 5:300]),
        (W[..., -1, :], P[..., -1, :]),
        (W @ right, P @ right),
        (W.T @ left, P.mT @ left),
        (W.pooled(3, 5), gh.PooledMap(3, 5).of(attention.trace(query, key, key))),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


TRAIN = """
import sys
sys.path[:0] = sys.argv[2:]
from tiny_training import run
from glasshead.tasks.training.processes import Hardware
from pathlib import Path
strategy, precision = sys.argv[1].split(",")
folder = run(Path(sys.argv[2]) / "run", hardware=Hardware(
    accelerator="cuda", devices=1, strategy=strategy, precision=precision))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["auto,32-true", "auto,bf16-mixed", "ddp,32-true"])
def test_training(how, tmp_path):
    """In a process of its own, as PyTorch keeps the process group of the first."""
    place = str(ROOT / "tests" / "tasks" / "training")
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, how, str(tmp_path), place],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(600)
def test_sharded_training(tmp_path):
    """FSDP, which takes a GPU, by the command, on one of them."""
    text = tmp_path / "text.txt"
    text.write_text("all work and no play makes a dull day\n" * 200)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "glasshead", "train", "write", str(text)),
            *("--preset", "tiny", "--run", str(tmp_path / "run")),
            *("--set", "steps=7", "--set", "warmup=1", "--set", "optimizer=adamw"),
            *("--strategy", "fsdp", "--accelerator", "cuda", "--devices", "1"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


# The compiler of its peers warns of its own parts, and of TF32, which is not used.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(900)
def test_the_benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = script("benchmarks/gpu.py")
    monkeypatch.setitem(sys.modules, "gpu", module)
    sizes = module.Sizes(torch.device(DEVICE), lengths=(512,), judged_at=512, pairs=1, exact_at=512)
    rows = [*module.observed(sizes, 512), *module.exactness(sizes)]
    assert all(row.reached for row in rows if row.name in ("entropy", "received", "log_sum_exp"))


def test_the_kernels_tell_their_logsumexp():
    """With a gradient every fused kernel does; it is what saves the second pass."""
    from glasshead.engines.fused import _Recorder
    from glasshead.engines.reducing import of_rows

    attention = gh.Attention(mask=gh.causal(), engine="fused")
    for kernel in ("flash", "efficient", "cuDNN"):
        x = inputs_of(kernel, torch.bfloat16)
        problem = attention.problem(*x)
        (expected,) = by_rows(problem.detached(), [LogSum()])[0]
        with sdpa_kernel(KERNELS[kernel]), _Recorder() as recorder:
            attention(*x)
        known = of_rows(recorder.logsumexps, problem)
        assert known is not None, kernel
        torch.testing.assert_close(known.detach().float(), expected, rtol=1e-4, atol=1e-4)
