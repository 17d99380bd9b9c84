"""Models of Hugging Face transformers, captured at their attention interface."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glasshead.engines.reducing import of_rows
from glasshead.recipe.masks import Mask, causal, combined, from_huggingface, window
from glasshead.recipe.tile import Tile
from glasshead.recipe.validation import cast_inputs
from glasshead.watching.alike_steps import fingerprints_of, match
from glasshead.watching.captured_call import (
    CapturedCall,
    ComparableCall,
    MaskReader,
    OutputGradient,
    first_keys,
    position_among,
    problem_from_inputs,
)
from glasshead.watching.errors import UnseenError
from glasshead.watching.foreign import answer, attribute, holds, is_a
from glasshead.watching.interception.selected_operators import hidden
from glasshead.watching.interception.session import Patch, Session, intercepted
from glasshead.watching.interception.torch_attention import capture_change, hide
from glasshead.watching.intervener import AttentionChange
from glasshead.watching.module_calls import crosses_by_arguments, lengths_of, other_texts

_Function = Callable[..., Any]
# Inspecting a signature takes longer than a small attention.
_signature = lru_cache(maxsize=64)(inspect.signature)
# Without a mask these functions hide nothing; all others are causal where the module is.
_HIDING_NOTHING = ("eager", "flex_attention")
# As PyTorch aligns it; what is known of it for one layer is known for all.
_CAUSAL = causal(offset=0)
_ARGUMENTS = {"query", "key", "value", "attention_mask", "scaling"}
# By these names each model of transformers 4 defines its own.
_EAGER_FUNCTIONS = (
    "eager_attention_forward",
    "simple_eager_attention_forward",
    "vision_eager_attention_forward",
)


def interface() -> list[Patch]:
    """Return the patches of transformers' attention interface, once transformers is imported.

    The model's own function runs under its own name, by which transformers also builds the masks,
    so that functions and masks stay matched.
    """
    if "transformers.modeling_utils" not in sys.modules:
        return []
    from transformers.modeling_utils import AttentionInterface

    if hasattr(AttentionInterface, "get_interface"):
        return [Patch(AttentionInterface, "get_interface", _get_interface)]
    # Transformers 4 indexes the interface, and runs a model's eager function past it. One that
    # scales by itself, such as GPT-2's, also hides keys by itself, and is followed by hand.
    models = [module for name, module in sys.modules.items() if name.startswith("transformers.")]
    eager = [
        Patch(module, name, _eager)
        for module in models
        for name in _EAGER_FUNCTIONS
        if name in vars(module) and {*_signature(vars(module)[name]).parameters} >= _ARGUMENTS
    ]
    return [Patch(AttentionInterface, "__getitem__", _get_interface), *eager]


def _get_interface(
    session: Session, original: _Function, interface: Any, *args: Any, **named: Any
) -> _Function:
    del session
    function = original(interface, *args, **named)
    name = args[0] if args else named.get("attn_implementation")
    return partial(intercepted, partial(_run, str(name)), function)


def _eager(session: Session, original: _Function, *inputs: Any, **named: Any) -> Any:
    return _run("eager", session, original, *inputs, **named)


def _run(
    name: str,
    session: Session,
    function: _Function,
    /,
    module: nn.Module,
    *inputs: Any,
    **named: Any,
) -> Any:
    given = _by_name(function, module, *inputs, **named)
    variables = _variables(module)
    if variables.get("head_mask") is not None:
        # Transformers 4 multiplies the weights by it; ViT passes it as a mask.
        raise UnseenError(
            f"watch does not support head_mask, which {type(module).__name__} received. Omit "
            "head_mask, or ablate heads with gh.ablate."
        )
    crosses = crosses_by_variables(module, variables, given["key"].shape[-2], _cache_kind())
    fed = _fed(module, variables)
    compressed = _compressed(variables, given["key"])
    captured = partial(_InterfaceCall, name, given, fed, crosses, compressed, session.masks)
    if session.changes:
        change = session.change(module, given["query"].shape[-3], captured())
        if change is not None:
            return _run_changed(session, function, name, given, change)
    # Statistics of one query need no logsumexp, so the kernel that returns it is not intercepted.
    unwatched = hidden() if given["query"].shape[-2] == 1 else nullcontext()
    with session.suspended() as logsumexps, unwatched:
        output = function(module, *inputs, **named)
    session.observe(module, captured(output[0], logsumexps), output[0])
    return output


def _variables(module: nn.Module) -> dict[str, Any]:
    """Return the local variables of the method of a module that calls its attention function.

    They hold more than it passes on.
    """
    frame = sys._getframe(2)  # noqa: SLF001 - it has no other name
    while frame is not None:
        variables = frame.f_locals
        if variables.get("self") is module:
            return variables
        frame = frame.f_back
    return {}


def _run_changed(
    session: Session,
    function: _Function,
    name: str,
    given: dict[str, Any],
    change: AttentionChange,
) -> Any:
    """Run an attention function with interventions.

    Errors: a ValueError if it takes no mask of pairs.
    """
    if change.hides:
        mask, keys = given.get("attention_mask"), given["key"].shape[-2]
        if name not in ("eager", "sdpa") or not (mask is None or isinstance(mask, Tensor)):
            raise ValueError(
                "ForbidKeys and ForceKeys need attention with a mask for each pair, but "
                f"{change.name!r} runs {name}. Load the model with attn_implementation='sdpa'."
            )
        mask = hide(None if mask is None else mask[..., :keys], change.visible(keys))
        if name == "eager" and mask.dtype == torch.bool:
            # These functions add their mask to the scores.
            added = torch.zeros_like(mask, dtype=given["query"].dtype)
            mask = added.masked_fill(~mask, -torch.inf)
        given = {**given, "attention_mask": mask}
    if change.scales:
        given = {**given, "query": change.query(given["query"])}
    if change.rekeys:
        given = {**given, "key": change.key(given["key"])}
    with session.suspended() as logsumexps:
        output = function(**given)
    heads = given["query"].shape[-3]
    made = change.emptied(_heads_apart(output[0], heads))
    known = {"drops": _drops(name, given), "follows": "flash" not in name}
    session.observe(
        given["module"], partial(capture_change, change, made, logsumexps, **known), made
    )
    context = change.context(made).transpose(1, 2).reshape(output[0].shape)
    return context, *output[1:]


def slides(module: Any) -> bool:
    """Return whether a module of transformers attends within a sliding window, by its settings."""
    own = attribute(attribute(module, "config"), "sliding_window")
    return holds(attribute(module, "sliding_window", own))


def _drops(name: str, given: dict[str, Any]) -> bool:
    """Return whether a call drops weights.

    Only the eager functions skip dropout by themselves in evaluation mode.
    """
    return bool(given.get("dropout") and (given["module"].training or name != "eager"))


def _heads_apart(output: Tensor, heads: int) -> Float[Tensor, "batch heads queries value_dim"]:
    """Return an output `[batch, queries, heads, dim]`, whose last axes may be merged, by heads."""
    return output.reshape(*output.shape[:2], heads, -1).transpose(1, 2)


def _fed(module: nn.Module, variables: dict[str, Any]) -> int | None:
    """Return the number of tokens in the cache of a module; None without a cache.

    The interface is not given the cache, which is a local variable of its caller.
    """
    kind, layer = _cache_kind(), attribute(module, "layer_idx")
    # First by the usual names: a method has many variables.
    named = (variables.get(name) for name in _CACHES)
    cache = next((one for one in chain(named, variables.values()) if is_a(one, kind)), None)
    if cache is None or layer is None:
        return None
    own = answer(lambda: int(cache.get_seq_length(layer)))
    # A layer that reads the keys of another has none of its own in the cache.
    return own or answer(lambda: int(cache.get_seq_length()))


def _compressed(variables: dict[str, Any], key: Tensor) -> int:
    """Return how many of the keys stand for several tokens each, as DeepSeek-V4's last ones do.

    Other models have latent keys by the same name, from which they make those of each token.
    """
    kept = variables.get("compressed_kv")
    if not is_a(kept, Tensor) or kept.ndim != key.ndim or kept.shape[-1] != key.shape[-1]:
        return 0
    count = kept.shape[-2]
    return count if torch.equal(key[..., key.shape[-2] - count :, :], kept) else 0


@cache
def _cache_kind() -> type:
    from transformers.cache_utils import Cache

    return Cache


def _by_name(function: _Function, /, *inputs: Any, **named: Any) -> dict[str, Any]:
    """Return the arguments of a call by name, those of `**kwargs` included."""
    return {**dict(zip(_positional(function), inputs, strict=False)), **named}


@lru_cache(maxsize=64)
def _positional(function: _Function) -> tuple[str, ...]:
    """Return the names of the arguments of a function that may be given by position."""
    parameters = _signature(function).parameters.values()
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return tuple(one.name for one in parameters if one.kind in kinds)


_TENSORS = "query", "key", "value"
# These differ between layers with equal arguments.
_OWN = {"module", "attention_mask", *_TENSORS}


class _Fingerprint(NamedTuple):
    """The arguments of a call, without its tensors.

    Attributes:
        kind: Equal for calls of one kind.
        mask: Its mask as it was read; None: it had none.
        others: The fingerprints of its arguments by name; its tensors and its module may be any.
    """

    kind: tuple[Any, ...]
    mask: object
    others: dict[str, Any]


@dataclass(frozen=True, eq=False)
class _InterfaceCall(ComparableCall):
    """A call of an attention function; all of them take the same arguments.

    Attributes:
        name: Name of the function.
        given: Its arguments by name.
        fed: Number of tokens in its cache; None without a cache.
        crosses: Whether its keys belong to another text; None: that is to be found.
        compressed: How many of its keys stand for several tokens each.
        masks: The conversions of mask tensors.
        output: Its output; None before it has run.
        logsumexps: Those of the kernels that it ran.
    """

    name: str
    given: dict[str, Any]
    fed: int | None
    crosses: bool | None
    compressed: int
    masks: MaskReader
    output: Tensor | None = None
    logsumexps: Sequence[Tensor] = ()

    def __call__(self) -> CapturedCall:
        """Capture the call."""
        name, given, fed, output = self.name, self.given, self.fed, self.output
        module = given["module"]
        query, key, value = cast_inputs(given["query"], given["key"], given["value"])
        queries, keys = query.shape[-2], key.shape[-2]
        is_causal, own = given.get("is_causal"), holds(attribute(module, "is_causal", True))
        is_causal = own if is_causal is None else bool(is_causal)
        crossing = bool(self.crosses)
        # GPT-2 of transformers 4 says of a call that it is not causal where a mask makes it so.
        if self.crosses is None and not (is_causal or own) and queries != keys:
            crossing = crosses_by_arguments(queries, keys)
        position = None if crossing or fed is None or fed < queries else fed - queries
        of_text = keys - self.compressed
        sees = _sees(name, given, self.masks, of_text, is_causal=is_causal, position=position)
        biases = [sees.bias, given.get("position_bias")]
        bias = sum(bias[..., :keys] for bias in biases if bias is not None)
        problem = problem_from_inputs(
            query,
            key,
            value,
            scale=given.get("scaling"),
            offset=sees.offset,
            mask=sees.mask,
            bias=bias if isinstance(bias, Tensor) else None,
            softcap=given.get("softcap"),
            sinks=_sinks(name, given),
        )
        if not crossing:
            problem = first_keys(problem, sees.offset + queries)
        captured = partial(
            CapturedCall,
            problem,
            position=position,
            sliding=bool(given.get("sliding_window")) or holds(attribute(module, "sliding_window")),
            crossing=crossing,
            compressed=self.compressed,
            logsumexp=of_rows(self.logsumexps, problem),
        )
        if output is None:
            return captured()
        heads, drops = query.shape[-3], _drops(name, given)
        made = _heads_apart(output.detach(), heads)
        return captured(
            output=None if sees.inexact or drops else made,
            context=lambda: made,
            gradient=OutputGradient(
                output, lambda gradient: _heads_apart(gradient, heads), lambda: problem.value, drops
            ),
        )

    def fingerprint(self, captured: CapturedCall) -> _Fingerprint | None:
        """Return a fingerprint of its arguments, without its tensors; None if there is none.

        Args:
            captured: The call as it was captured.
        """
        given, problem, mask = self.given, captured.problem, self._mask()
        both = (given["query"], problem.query), (given["key"], problem.key)
        both += ((given["value"], problem.value),)
        # An axis was added or expanded, or a dtype cast.
        differs = any(x.shape[:-2] != y.shape[:-2] or x.dtype != y.dtype for x, y in both)
        if differs or mask is not self._mask():
            return None
        return _Fingerprint(self._kind(), mask, fingerprints_of(given, _OWN))

    def captured_like(self, fingerprint: _Fingerprint, first: CapturedCall) -> CapturedCall | None:
        """Capture the call as another one; None if their arguments differ.

        Args:
            fingerprint: Of the other one.
            first: The other one as it was captured, without numbers.
        """
        given, problem = self.given, first.problem
        if (
            self._kind() != fingerprint.kind
            or not match(fingerprint.others, given)
            or self._mask() is not fingerprint.mask
        ):
            return None
        tensors = (given[name] for name in _TENSORS)
        query, key, value = (one.detach() if one.requires_grad else one for one in tensors)
        count = problem.key.shape[-2]
        if count < key.shape[-2]:
            key, value = (x[..., :count, :] for x in (key, value))
        return CapturedCall(
            problem.with_inputs(query, key, value),
            position=first.position,
            sliding=first.sliding,
            compressed=first.compressed,
        )

    def _kind(self) -> tuple[Any, ...]:
        """Return what calls share that are captured alike, of numbers, shapes and types."""
        module = self.given["module"]
        tensors = [self.given[name] for name in _TENSORS]
        return (
            self.name,
            type(module),
            self.fed,
            self.crosses,
            self.compressed,
            holds(attribute(module, "is_causal", True)),
            holds(attribute(module, "sliding_window")),
            [(one.shape, one.dtype, one.device) for one in tensors],
            # Each layer has sinks of its own.
            None if _sinks(self.name, self.given) is None else object(),
        )

    def _mask(self) -> object:
        """Return the mask as it was read; another object each time if that is not known again."""
        tensor, keys = self.given.get("attention_mask"), self.given["key"].shape[-2]
        if tensor is None:
            return None
        if not isinstance(tensor, Tensor) or "flash" in self.name:
            return object()
        return self.masks.read(_of_keys(tensor, keys))


class _Sees(NamedTuple):
    """The mask and bias of a call.

    Attributes:
        mask, bias: Parts of a recipe.
        offset: Position of query 0 among the keys.
        inexact: Whether the kernel's output for rows of padding is arbitrary.
    """

    mask: Mask | None
    bias: Tensor | None
    offset: int
    inexact: bool = False


def _sees(
    name: str,
    given: dict[str, Any],
    masks: MaskReader,
    of_text: int,
    *,
    is_causal: bool,
    position: int | None,
) -> _Sees:
    """Return the mask of a call, whose type depends on the attention function.

    Args:
        name: Name of the function.
        given: Its arguments by name.
        masks: The conversions of mask tensors.
        of_text: Number of keys of the text, which come first.
        is_causal: Whether a query sees no later key.
        position: Position of the first query in the text, where known.
    """
    tensor, query = given.get("attention_mask"), given["query"]
    queries, keys = query.shape[-2], given["key"].shape[-2]
    last = max(0, of_text - queries)
    # A sliding cache holds the last keys only, and a static one has room for later keys.
    known = None if position is None else min(position, last)
    if "flash" in name:
        # These kernels take no dense mask, and are aligned to the bottom right.
        before = given.get("sliding_window")
        band = window(before - 1, 0 if is_causal else before - 1) if before else None
        padded = None if tensor is None else from_huggingface(tensor[:, -keys:])[0]
        mask = combined([causal() if is_causal else None, band, padded])
        return _Sees(mask, None, last, inexact=padded is not None)
    if tensor is None:
        if name in _HIDING_NOTHING or not is_causal or queries == 1:
            return _Sees(None, None, last)
        return _Sees(_CAUSAL, None, 0)
    if not isinstance(tensor, Tensor):
        # A BlockMask of FlexAttention, which holds its `mask_mod`.
        mask = RuleMask(tensor.mask_mod, query.shape[0])
        if known is None:
            tile = Tile(range(queries), range(keys), last, device=query.device)
            known = position_among(queries, keys, mask.visible(tile) if last else None)
        return _Sees(mask, None, known)
    read = masks.read(_of_keys(tensor, keys))
    if known is None:
        known = read.position(queries, keys)
    return _Sees(read.mask, read.bias, known)


def _of_keys(mask: Tensor, keys: int) -> Tensor:
    return mask[..., :keys] if mask.shape[-1] > keys else mask


def _sinks(name: str, given: dict[str, Any]) -> Tensor | None:
    """Return the attention sinks of a call, which PyTorch's own function ignores."""
    if name == "sdpa":
        return None
    sinks = given.get("s_aux")
    return attribute(given["module"], "sinks") if sinks is None else sinks


@dataclass(frozen=True, eq=False, repr=False)
class RuleMask(Mask):
    """A mask in which pair (i, j) is visible where rule(batch, head, i, j) is true, for all heads.

    Attributes:
        rule: The `mask_mod` of a BlockMask.
        batch: The batch size.

    Source: Dong et al. 2024 (FlexAttention), section 3.
    """

    rule: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    batch: int

    def visible(self, tile: Tile) -> Bool[Tensor, "batch 1 queries keys"]:
        rows = torch.arange(tile.queries.start, tile.queries.stop, device=tile.device)
        batch = torch.arange(self.batch, device=tile.device)
        head = torch.zeros((), dtype=torch.int64, device=tile.device)
        seen = self.rule(batch[:, None, None], head, rows[:, None], tile.columns())
        return seen.expand(self.batch, *tile.shape)[:, None]

    def __repr__(self) -> str:
        return f"RuleMask({getattr(self.rule, '__name__', self.rule)})"


# By these names it is given the keys of its own text from earlier calls.
_CACHES = ("past_key_values", "past_key_value", "layer_past")


def crosses_by_variables(
    module: nn.Module, variables: Mapping[str, Any], keys: int, cache: type
) -> bool | None:
    """Return whether the keys of a module of transformers belong to another text.

    Args:
        module: The module.
        variables: The local variables of its method.
        keys: Number of keys.
        cache: The class of caches.

    Returns: None if its variables do not say.
    """
    others = other_texts(variables)
    if any(one is variables.get("hidden_states") for one in others):
        return False
    crosses = variables.get("is_cross_attention", attribute(module, "is_cross_attention"))
    if type(crosses) is bool:
        return crosses
    if "cross" in type(module).__name__.lower() or any(keys in lengths_of(one) for one in others):
        return True
    cached = any(variables.get(name) is not None for name in _CACHES)
    return False if cached or any(is_a(one, cache) for one in variables.values()) else None
