"""Observe every attention of a model while it runs as it is, or with interventions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from glasshead.attention.attention import Statistics
from glasshead.recipe.masks import Mask
from glasshead.recipe.validation import whole_number
from glasshead.statistics import normalize_statistics
from glasshead.watching.ends import check_ends
from glasshead.watching.interception.banded_attention import banded_attention
from glasshead.watching.interception.cache_rows import cache_rows
from glasshead.watching.interception.mixer_kernels import mixer_kernels
from glasshead.watching.interception.opening import intervening, watching
from glasshead.watching.interception.operator_mode import calling_back, observing_operators
from glasshead.watching.interception.patches import (
    by_any_name,
    check_compiled_code_is_seen,
    functions,
    scripting,
)
from glasshead.watching.interception.recompilation import check_compiled, recompiling
from glasshead.watching.interception.session import THREADS, Patch
from glasshead.watching.interception.transformers_models import interface
from glasshead.watching.intervener import Intervener
from glasshead.watching.interventions import Intervention, ZeroAblation
from glasshead.watching.layer_record import close
from glasshead.watching.module_calls import compiled_parts
from glasshead.watching.padding import check_mask
from glasshead.watching.residual.call_parts import parts_of
from glasshead.watching.residual.following import following
from glasshead.watching.residual.tape import Tape
from glasshead.watching.seen import Seen, end
from glasshead.watching.watcher import WatchChoices, Watcher


@contextmanager
def watch(  # noqa: PLR0913 - each is an option of its own
    model: nn.Module,
    statistics: Statistics = (),
    *,
    layers: str | Sequence[str] | None = None,
    heads: Sequence[int] | None = None,
    attention_mask: Bool[Tensor, "batch tokens"] | Int[Tensor, "batch tokens"] | None = None,
    ended: int | Sequence[int] | Int[Tensor, " batch"] | None = None,
    keep: str | None = None,
    budget: int = 2**31,
    expect: Mapping[str, Mask | None] | None = None,
    same_bits: bool = True,
    mixers: bool = False,
) -> Iterator[Seen]:
    """Observe every attention of a model while the block lasts.

    The model runs unchanged, on its own kernels: its outputs, its gradients and the random numbers
    that it draws stay the same, bit for bit. It may be any PyTorch model that calls
    `F.scaled_dot_product_attention`, by any name and on any backend, or eager `flex_attention`;
    PyTorch's own transformer layers, a model of transformers in any attention mode, or one of ours;
    or it may compute explicit attention: a product, a softmax and a product.
    Three axes, `[batch, queries, dim]`, have no heads; PyTorch 2.15 makes heads of that batch if
    the function is called by another name. Attention within `torch.cond` and other higher-order
    operators is seen, under the name of the module that calls them. Statistics are exact, of the
    weights before dropout, and take memory that grows with queries + keys. Nothing of the model is
    changed.

    A watch belongs to the thread that opened it and, in asyncio, to the task that opened it and
    the tasks that this one starts. Recomputation by gradient checkpointing is not counted twice.
    In beam search rows of the batch are reordered, and each step has its own order; if speculative
    decoding rejects tokens, a new text begins.

    What is compiled by `torch.compile`, be it the model, a part of it or a function that calls it,
    is compiled once more for watches, by the same backend, with an operator next to each attention.
    Its outputs equal the unwatched compiled model's, bit for bit, and its names are those in the
    module given to `torch.compile`.

    Padding does not count: statistics that sum over queries, such as `Received`, and functions that
    sum over calls, such as `summary` and `rollout`, omit padded queries. These are known from
    the mask given to the model, or from `attention_mask`. If both are missing and a batch looks
    padded, a warning at the end of the block says so. Tokens that a row is fed after its text has
    ended, while `generate` goes on with other rows, count as padding: see `ended`.

    Args:
        model: The model to run inside the block.
        statistics: A list, or a dict keyed by name. They have no gradient.
        layers: Patterns of module names, such as "model.layers.1*"; None: all layers.
        heads: Head indices, counted from 0; None: all.
        attention_mask: 1 or True for real tokens, as returned by a tokenizer; None: the mask given
            to the model. For an encoder-decoder it is the encoder's.
        ended: What ends the text of a row in a decoding loop of your own: token ids, or a tensor
            with the length of each row, padding before it included. Later queries count as padding.
            None: the model's `eos_token_id`, if padding follows it; []: nothing.
        keep: "weights" also keeps the lazy `Weights` of each call; "gradients" these and, once a
            backward pass has run, the lazy `WeightGradients` of the loss with respect to them;
            "context" the output of its heads before the output projection, for `MeanAblation` and
            `ActivationPatch`; "trace" every step, as a `Trace` for `gh.explain`, with all of its
            matrices: of explicit attention, or of a function's queries, keys and values if they
            give the output that it gave; "parts" the weights, and what each module added to the
            residual stream, for `score_parts`, `logit_parts` and `trace_back`.
        budget: Memory for these in bytes, over all calls. When it is spent, nothing more is kept; a
            warning at the end of the block says so, and reading what is missing raises a
            `BudgetError`, which is a ValueError.
        expect: Masks by patterns of module names, such as `{"model.layers.*": gh.causal()}`, of
            which the first that names a layer counts; None states that nothing is hidden. A warning
            at the end of the block names the layers that ran by another mask, and
            `seen.unexpected` says how. Padding is not compared.
        same_bits: False allows the streaming engine to compute calls of
            `F.scaled_dot_product_attention` on the CPU in the model's place, with the statistics in
            one pass. Outputs and gradients then round otherwise, and `call.kernel` is "streaming".
            Compiled code, dropout, gradient checkpointing, interventions, a second watch and calls
            of fewer than 256 queries keep the model's kernel.
        mixers: Whether layers that mix tokens without attention are observed, too: linear
            attention, delta rules, state spaces, gated recurrences and short convolutions of
            transformers, by the `ImpliedWeights` that follow from the inputs of their kernels.
            Each run is checked: rows times values give what the kernel gave, to 1e-5 of its
            largest number in float32. They have `Received`, `MeanDistance`, of magnitudes, and
            `MassOn`, and keep weights or the context.

    Yields: the `Watched` of each attention, its statistics `[batch, heads, …]`, by the dotted name
    of its module.

    Errors: a TypeError or ValueError if an argument is invalid, a pattern matches nothing or
    this version of PyTorch cannot watch compiled models. Within the block a ValueError if a
    statistic does not fit the normalizer or a head is out of range. At the end of the block an
    `UnseenError`, a RuntimeError, if no attention was seen, none within a pattern, one does not
    follow from its inputs, or some cannot be seen, such as a softmax whose weights are mixed, a
    fused kernel under `torch.vmap`, a model on the meta device, or `flex_attention` in compiled
    code; the model has run undisturbed then. A statistic of more queries or keys than a short text
    has uses all of them.

    >>> import torch
    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    >>> with gh.watch(model, [gh.Entropy(), gh.Received()]) as seen:
    ...     output = model(torch.randn(2, 5, 12))
    >>> list(seen)
    ['layers.0.self_attn', 'layers.1.self_attn']
    >>> seen["layers.1.self_attn"].entropy.shape
    torch.Size([2, 3, 5])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"watch needs a model, got {type(model).__name__}. Pass a module.")
    check_compiled(model)
    requested = normalize_statistics(
        list(statistics) if isinstance(statistics, tuple) else statistics
    )
    choice = WatchChoices(
        requested,
        _heads(heads),
        _keeps(keep),
        whole_number(budget, "budget"),
        check_mask(attention_mask),
        expect,
        check_ends(ended),
        _flag(same_bits, "same_bits"),
        _flag(mixers, "mixers"),
    )
    _check_mixers(model, choice)
    if choice.keep == "parts" and compiled_parts(model):
        raise ValueError(
            "keep='parts' needs a model that is not compiled, as it follows operators. Give it the "
            "model as it was before torch.compile."
        )
    if not requested and not choice.keep:
        raise ValueError(
            "watch needs statistics such as [gh.Entropy()], or keep='weights', got neither."
        )
    watcher = Watcher(model, layers, choice)
    seen = Seen(watcher.watched, watcher.unobserved, watcher.recorder.masks.unexpected)
    try:
        with observing(watcher), _splitting(watcher, seen):
            yield seen
    finally:
        end(seen)
        for one in watcher.watched.values():
            close(one)
    check_compiled_code_is_seen()
    watcher.check_seen()


def observing(watcher: Watcher) -> AbstractContextManager[None]:
    """Return the block in which a watcher observes its model; it checks nothing at its end."""
    # A block may be left in another thread, as in a generator, and still belongs to this one.
    patches = [*_patches(), *recompiling(), *calling_back()]
    if watcher.mixers is not None:
        patches += mixer_kernels(watcher.names)
    return watching(THREADS.session, watcher, patches, observing_operators())


def _splitting(watcher: Watcher, seen: Seen) -> AbstractContextManager[None]:
    """Return the block in which the residual stream is followed, if its parts are asked for."""
    keeper = watcher.recorder.keeper
    if keeper is None or keeper.keep != "parts":
        return nullcontext()
    tape = Tape(watcher.names, partial(keeper.charge_or_stop, "the residual stream"))
    keeper.split, seen.logits = partial(parts_of, tape), lambda: tape.output
    return following(tape, watcher.model, watcher.names)


def _patches() -> list[Patch]:
    return [*functions(), *interface(), *banded_attention(), *scripting(), *cache_rows()]


def _heads(heads: Any) -> tuple[int, ...] | None:
    if heads is None:
        return None
    if not isinstance(heads, list | tuple | range) or not heads:
        raise TypeError(f"heads must be a list of heads such as [0, 3], got {heads!r}.")
    return tuple(whole_number(head, "heads") for head in heads)


def _flag(given: Any, name: str) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"{name} must be True or False, got {given!r}.")
    return given


def _check_mixers(model: nn.Module, choice: WatchChoices) -> None:
    """Raise a ValueError if mixers cannot be observed with what else was asked for."""
    if not choice.mixers:
        return
    if choice.keep not in (None, "weights", "context"):
        raise ValueError(
            f"mixers=True keeps 'weights', 'context' or nothing, got keep={choice.keep!r}."
        )
    if compiled_parts(model):
        raise ValueError(
            "mixers=True needs a model that is not compiled, as it follows functions of "
            "transformers. Give it the model as it was before torch.compile."
        )


def _keeps(keep: Any) -> str | None:
    if keep not in (None, "weights", "gradients", "context", "trace", "parts"):
        raise ValueError(
            "keep must be 'weights', 'gradients', 'context', 'trace', 'parts' or nothing, got "
            f"{keep!r}."
        )
    return keep


@contextmanager
def ablate(model: nn.Module, heads: Mapping[str, Sequence[int]]) -> Iterator[None]:
    """Ablate heads of a model while the block lasts.

    H = Σ_h context_h W_hᵀ + b_o, without the terms of the ablated heads: their context is set to 0
    before the output projection. Their weights are still computed, so that a `watch` around the
    block or within it sees them. Gradients flow through the other heads.

    The model may be one of ours, one of transformers in any attention mode, PyTorch's own
    transformer layers, which leave their fast paths meanwhile, or any other that calls
    `F.scaled_dot_product_attention`, or computes explicit attention while a `watch` is open, too.
    Nothing of it is changed. Its compiled parts run uncompiled meanwhile, as by
    `torch.compiler.set_stance("force_eager")`. A block belongs to the thread that
    opened it; nested blocks ablate the heads of all. With gradient checkpointing the backward pass
    belongs into the block, too, whatever thread PyTorch runs it in.

    Args:
        model: The model to run inside the block.
        heads: Head indices, counted from 0, by the dotted name of their module, as `watch` gives
            it.

    Errors: a TypeError or ValueError if an argument is invalid or a name is unknown. Within the
    block a ValueError if a head is out of range, or an attention has no head axis. At the end of
    the block a RuntimeError if a named attention was never reached, or a module was compiled
    within it.

    Source: Michel et al. 2019 (Are sixteen heads really better than one?), section 2.3.

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config).eval()
    >>> tokens = torch.tensor([[3, 1, 4, 1, 5]])
    >>> with gh.ablate(model, {"blocks.1.attention": [0, 2]}):
    ...     without = model(tokens)
    >>> torch.equal(without, model(tokens))
    False
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"ablate needs a model, got {type(model).__name__}. Pass a module.")
    ablations = {
        name: [ZeroAblation(heads=numbers)] if numbers else []
        for name, numbers in _check_heads(heads).items()
    }
    with _intervening(model, ablations, "ablate"):
        yield


@contextmanager
def intervene(
    model: nn.Module, interventions: Mapping[str, Intervention | Sequence[Intervention]]
) -> Iterator[None]:
    """Change attention of a model while the block lasts.

    An intervention changes all of what a module attends, or the heads and queries that it names:

    - `ZeroAblation()`, `MeanAblation(run)` and `ActivationPatch(run)` change the output of a head
      before the output projection. `run` is what `gh.watch(model, keep="context")` has seen.
    - `ScaleBeta(factor)` scales β, the inverse temperature of the softmax.
    - `ForbidKeys(keys)` (attention knockout) and `ForceKeys(keys)` change which keys are visible.
    - `PatchPart(run, component)` (path patching) changes what one component of the residual stream
      adds to the queries and keys. `run` is what `gh.watch(model, keep="parts")` has seen.

    Several interventions on one attention apply in their order, the outer block's first. A key is
    visible if all of them show it. All else is computed by the model's own functions, and gradients
    flow. A `watch` around the block or within it sees the changed queries, masks and weights; the
    `context` that it keeps follows from the changed weights, before it is ablated or patched.
    Positions are those of the text, also while it grows with a cache.

    The model may be any that `ablate` takes: one of ours, one of transformers in any attention
    mode, PyTorch's own layers, and whatever calls `F.scaled_dot_product_attention`. Explicit
    attention is changed while a `watch`, which follows it, is open too; there β stays, and a query
    keeps some key. Nothing of the model is changed. If it is compiled, fully or in part,
    it runs uncompiled meanwhile, as by `torch.compiler.set_stance("force_eager")`, which holds for
    all threads: the change in logits is then best computed from a pass in such a block, too, as
    compiled code rounds otherwise. A block belongs to the thread that opened it. With gradient
    checkpointing the backward pass belongs into the block, too.

    Args:
        model: The model to run inside the block.
        interventions: One, or a list, by the dotted name of a module, as `watch` gives it, or by a
            pattern of names such as "model.layers.*.self_attn".

    Errors: a TypeError or ValueError if an argument is invalid or a name is unknown. Within the
    block a ValueError if a head is out of range, an attention has no head axis, a run does not
    fit, or a function takes no mask of pairs. At the end of the block a RuntimeError if a named
    attention was never reached, a text had none of the named positions, or a module was compiled
    within it.

    Source: Vig et al. 2020 (Investigating gender bias in language models using causal mediation
    analysis).

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config).eval()
    >>> tokens, other = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[2, 7, 1, 8, 2]])
    >>> with torch.no_grad(), gh.watch(model, keep="context") as run:
    ...     logits = model(other)
    >>> changes = {
    ...     "blocks.0.attention": gh.ForbidKeys([0], queries=[4]),
    ...     "blocks.1.attention": [gh.ActivationPatch(run, heads=[0]), gh.ZeroAblation(heads=[2])],
    ... }
    >>> with torch.no_grad(), gh.intervene(model, changes):
    ...     changed = model(tokens)
    >>> torch.equal(changed, model(tokens))
    False
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"intervene needs a model, got {type(model).__name__}. Pass a module.")
    with _intervening(model, check_interventions(interventions), "intervene"):
        yield


@contextmanager
def _intervening(
    model: nn.Module, interventions: Mapping[str, Sequence[Intervention]], verb: str
) -> Iterator[None]:
    intervener = Intervener(model, interventions, verb)
    # Compiled code has no calls to change: its modules run as they were written.
    eager = torch.compiler.set_stance("force_eager") if compiled_parts(model) else nullcontext()
    with eager, intervening(THREADS.session, intervener, _patches(), by_any_name()):
        yield
    intervener.check_complete()


def check_interventions(interventions: Any) -> dict[str, list[Intervention]]:
    """Return lists of interventions by the names of modules.

    Errors: a TypeError if these are none.
    """
    if not isinstance(interventions, Mapping) or not all(
        isinstance(name, str) for name in interventions
    ):
        raise TypeError(
            "intervene needs interventions by the names of modules, such as "
            f'{{"blocks.1.attention": gh.ZeroAblation(heads=[0])}}, got {interventions!r}.'
        )
    found = {}
    for name, given in interventions.items():
        ones = list(given) if isinstance(given, list | tuple) else [given]
        for one in ones:
            if not isinstance(one, Intervention):
                raise TypeError(
                    "intervene needs interventions such as gh.ZeroAblation(heads=[0]) for "
                    f"{name!r}, got {one!r}."
                )
        found[name] = ones
    return found


def _check_heads(heads: Any) -> dict[str, list[int]]:
    if not isinstance(heads, Mapping) or not all(isinstance(name, str) for name in heads):
        raise TypeError(
            'ablate needs heads by the names of their modules, such as {"blocks.1.attention": [0, '
            f"3]}}, got {heads!r}."
        )
    for name, numbers in heads.items():
        if not isinstance(numbers, list | tuple | range):
            raise TypeError(
                f"ablate needs a list of heads such as [0, 3] for {name!r}, got {numbers!r}."
            )
    return {name: [whole_number(head, "heads") for head in heads[name]] for name in heads}
