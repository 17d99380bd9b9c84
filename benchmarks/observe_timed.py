"""The sections of `benchmarks/observe.py` that compare times within this process."""

import os
import tempfile

import torch
from observe_cases import (
    DIM,
    EIGHT,
    HEADS,
    SIX,
    Eager,
    Options,
    compared,
    inputs,
    observing,
    progress,
    sdpa,
)
from pairs import Figure, Pair, figure, seconds, seconds_of

import glasshead as gh

Rows = list[Pair | Figure]


def causal(options: Options) -> Rows:
    """Statistics beside the context, on both fast engines, against SDPA alone."""
    rows: Rows = []
    for length in options.lengths:
        of = inputs(length)
        plain = gh.Attention(mask=gh.causal(), engine="streaming")
        variants = {
            "call, streaming": (lambda of=of, plain=plain: plain(*of), None),
            "observe SIX, streaming": (observing(of, SIX, "streaming"), 1.6),
            "observe SIX, fused": (observing(of, SIX, "fused"), 1.8),
            "observe EIGHT, streaming": (observing(of, EIGHT, "streaming"), 2.2),
            "observe EIGHT, fused": (observing(of, EIGHT, "fused"), None),
        }
        for name, (ours, limit) in variants.items():
            limit = limit if length >= 2048 else None  # noqa: PLW2901 - of long texts
            pairs = options.pairs(length)
            rows.append(compared(f"{name}, T={length}", ours, sdpa(of), pairs, ratio=limit))
    return rows


def eager(options: Options) -> Rows:
    """SIX on the streaming engine against the same in plain torch, with the matrix."""
    rows: Rows = []
    for length in (1024,) if options.quick else (2048, 4096):
        of = inputs(length)
        ours, matrix, pairs = observing(of, SIX, "streaming"), Eager(of), 5
        least = 7 if length == 4096 else None
        rows += [
            compared(
                f"SIX | eager + SIX, T={length}",
                ours,
                matrix.with_statistics,
                pairs,
                speedup=least,
            ),
            compared(
                f"SIX | eager + SIX, rearranged, T={length}",
                ours,
                matrix.with_tricks,
                pairs,
            ),
            compared(f"SIX | eager alone, T={length}", ours, matrix.alone, pairs),
            compared(f"eager alone | SDPA, T={length}", matrix.alone, sdpa(of), pairs),
            compared(f"eager + SIX | SDPA, T={length}", matrix.with_statistics, sdpa(of), pairs),
        ]
    return rows


def flex(options: Options) -> Rows:
    """FlexAttention, compiled, with a causal block mask; it gives no statistics."""
    length = 1024 if options.quick else 2048
    of, name = inputs(length), f"FlexAttention, T={length}"
    progress(f"{name}: compiling")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        try:
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention

            block_mask = create_block_mask(
                lambda _batch, _head, i, j: i >= j, None, None, length, length, device="cpu"
            )
            compiled = torch.compile(flex_attention)
            first = seconds_of(lambda: compiled(*of, block_mask=block_mask))
        except Exception as error:  # noqa: BLE001 - whatever a compiler may lack, the rest is measured
            reason = str(error).strip().splitlines() or [type(error).__name__]
            return [figure(name, None, "s", about=f"does not run here: {reason[0][:60]}")]
        finally:
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]

        def theirs() -> object:
            return compiled(*of, block_mask=block_mask)

        pairs = options.pairs(length)
        ours = observing(of, SIX, "streaming")
        return [
            figure(f"{name}, first call", first, "s", about="compiling, once a process"),
            compared(f"FlexAttention | SDPA, T={length}", theirs, sdpa(of), pairs),
            compared(f"SIX | FlexAttention, T={length}", ours, theirs, pairs),
        ]


def masks(options: Options) -> Rows:
    """Masks that hide most pairs, against SDPA with the same mask as a tensor."""
    length = 4096 if options.quick else 8192
    size = 512
    of, pairs = inputs(length), options.pairs(8192)
    ids = torch.arange(length // size).repeat_interleave(size)
    causal_mask = torch.ones(length, length, dtype=torch.bool).tril()
    window = causal_mask & torch.ones_like(causal_mask).triu(-255)
    documents = causal_mask & (ids[:, None] == ids)
    windowed = gh.Attention(mask=gh.causal() & gh.window(before=255))
    packed = gh.Attention(mask=gh.causal() & gh.documents(ids))
    # With documents of one length there is a way without a mask tensor: each as a batch row.
    query, key, value = (
        x.unflatten(2, (-1, size)).transpose(1, 2).flatten(0, 1).contiguous() for x in of
    )
    return [
        compared(
            f"window(before=255), T={length}",
            lambda: windowed(*of),
            sdpa(of, window),
            pairs,
            speedup=5,
        ),
        compared(
            f"{length // size} documents of {size}, T={length}",
            lambda: packed(*of),
            sdpa(of, documents),
            pairs,
            speedup=5,
        ),
        compared(
            f"the same | SDPA, a batch of {length // size}",
            lambda: packed(*of),
            sdpa((query, key, value)),
            pairs,
        ),
        compared(
            f"the same documents, SIX, T={length}",
            lambda: packed.observe(*of, SIX),
            sdpa(of, documents),
            pairs,
        ),
    ]


def peak(options: Options) -> Rows:
    """How near each comes to the time that its products alone would take at full speed.

    Of each the best of several rounds, in which products of large squares take their turn, so that
    all are measured at what the machine gives at its best.
    """
    size = 1024 if options.quick else 3072
    left, right, result = torch.randn(3, size, size)
    squares: list[float] = []
    best: dict[int, dict[str, float]] = {}
    for length in [n for n in options.lengths if n >= 2048] or options.lengths[-1:]:
        of = inputs(length)
        plain = gh.Attention(mask=gh.causal(), engine="streaming")
        variants = {
            "SDPA": sdpa(of),
            "call, streaming": lambda of=of, plain=plain: plain(*of),
            "observe SIX, streaming": observing(of, SIX, "streaming"),
        }
        progress(f"products and engines at their best, T={length}")
        for _ in range(9):
            squares += [seconds_of(lambda: torch.mm(left, right, out=result)) for _ in range(3)]
            for name, variant in variants.items():
                found = best.setdefault(length, {})
                found[name] = min(found.get(name, float("inf")), seconds_of(variant))
    speed = 2 * size**3 / min(squares)
    about = f"torch.mm of squares of {size}, {torch.get_num_threads()} threads"
    rows: Rows = [figure("sgemm", speed / 1e9, "GFLOP/s", about=about)]
    for length, found in best.items():
        # Two products, a multiply and an add each, of half of the pairs.
        least = 4 * HEADS * DIM * (length * (length + 1) // 2) / speed
        rows.append(figure(f"two products, T={length}", least, "s", about="causal, at that speed"))
        rows += [
            figure(
                f"{name}, T={length}", 100 * least / taken, "%", about=f"of it, in {seconds(taken)}"
            )
            for name, taken in found.items()
        ]
    return rows
