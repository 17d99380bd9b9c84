"""Multi-head attention: learned projections around `Attention`."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import accumulate, groupby
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar, cast

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.attention import Attention, Observation, Weights
from glasshead.attention.attention import Statistics
from glasshead.attention.followed_classes import LAYERS, followed_as
from glasshead.layers.layer_cache import KeyValueCache, lookback
from glasshead.layers.positions import Rotary
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Mask, combined
from glasshead.recipe.problem import Trace
from glasshead.recipe.validation import check_divides, whole_number

_Arguments = ParamSpec("_Arguments")


class _Place(NamedTuple):
    """Rows of a stacked matrix that compute one output."""

    stack: int
    start: int
    stop: int


class Projections(nn.Module):
    """Linear maps x ↦ x Wᵀ + b, stacked in one matrix where they read inputs of one width.

    Neighboring maps of one width share a matrix, stacked by rows. Where they are given
    the same input too, as in self-attention, one product makes them all; in cross-attention, keys
    and values are made together.

    Args:
        inputs: The width of each input.
        outputs: The width of each output.
        bias: Whether each map adds a bias.

    >>> import torch
    >>> projections = Projections((7, 5, 5), (6, 4, 4))
    >>> projections.stacks
    ModuleList(
      (0): Linear(in_features=7, out_features=6, bias=True)
      (1): Linear(in_features=5, out_features=8, bias=True)
    )
    >>> words, others = torch.rand(3, 7), torch.rand(3, 5)
    >>> [x.shape[-1] for x in projections(words, others, others)]
    [6, 4, 4]
    """

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int], *, bias: bool = True) -> None:
        super().__init__()
        self.inputs = tuple(inputs)
        stacks, places = [], []
        for width, run in groupby(zip(inputs, outputs, strict=True), lambda pair: pair[0]):
            stops = list(accumulate(output for _, output in run))
            starts = [0, *stops[:-1]]
            places += [_Place(len(stacks), *rows) for rows in zip(starts, stops, strict=True)]
            stacks.append(nn.Linear(width, stops[-1], bias=bias))
        self.stacks = nn.ModuleList(stacks)
        self.places = tuple(places)

    def forward(
        self, *given: Float[Tensor, "*batch _width"]
    ) -> list[Float[Tensor, "*batch _output"]]:
        """Compute the outputs of the first maps, one for each given input."""
        outputs: list[Tensor] = []
        while len(outputs) < len(given):
            outputs += self._product(given, len(outputs))
        return outputs

    @property
    def one(self) -> bool:
        """Return whether all maps are stacked in one matrix."""
        return len(self.stacks) == 1

    def together(self, x: Float[Tensor, "*batch _width"]) -> Float[Tensor, "*batch _outputs"]:
        """Compute the outputs of all maps side by side, where they are stacked in one matrix."""
        stack = cast("nn.Linear", self.stacks[0])
        return F.linear(x, stack.weight, stack.bias)

    def _product(self, given: Sequence[Tensor], first: int) -> Sequence[Tensor]:
        """Compute the output of map `first`, and of those after it that share its product."""
        x, after = given[first], first + 1
        while after < len(given) and given[after] is x:
            after += 1
        places = self.places[first:after]
        weight, bias = self._rows(_Place(places[0].stack, places[0].start, places[-1].stop))
        return F.linear(x, weight, bias).split([p.stop - p.start for p in places], -1)

    def _rows(self, place: _Place) -> tuple[Tensor, Tensor | None]:
        linear = cast("nn.Linear", self.stacks[place.stack])
        weight, bias = linear.weight, linear.bias
        if (place.start, place.stop) != (0, len(weight)):
            weight = weight[place.start : place.stop]
            bias = None if bias is None else bias[place.start : place.stop]
        return weight, bias

    def maps(self) -> list[tuple[Float[Tensor, "output input"], Float[Tensor, " output"] | None]]:
        """Return weight and bias of each map, as views into the stacked matrices."""
        return [self._rows(place) for place in self.places]


class QueryKeyNorm(nn.Module):
    """Norms of queries and keys before their inner product, so that no score grows without bound.

    Args:
        query, key: Norms of `head_dim` numbers, for each head by itself, as in Qwen3; or of the
            numbers of all heads of a position, as in OLMo 2.
        joined: Whether they are of all heads.

    Source: Dehghani et al. 2023 (Scaling vision transformers to 22 billion parameters), section 2;
    joined: Team OLMo 2025 (2 OLMo 2 Furious), section 2.

    >>> import torch
    >>> heads = torch.tensor([[[[3.0, 0.0]], [[0.0, 4.0]]]])  # √((9 + 16) / 4) = 2.5
    >>> norm = nn.RMSNorm(4, elementwise_affine=False)
    >>> QueryKeyNorm(norm, norm, joined=True).queries(heads).flatten()
    tensor([1.2000, 0.0000, 0.0000, 1.6000])
    """

    def __init__(self, query: nn.Module, key: nn.Module, *, joined: bool = False) -> None:
        super().__init__()
        self.query, self.key, self.joined = query, key, joined

    def forward(
        self,
        query: Float[Tensor, "batch heads queries head_dim"],
        key: Float[Tensor, "batch kv_heads keys head_dim"],
    ) -> tuple[
        Float[Tensor, "batch heads queries head_dim"], Float[Tensor, "batch kv_heads keys head_dim"]
    ]:
        """Normalize queries and keys."""
        return self.queries(query), self._normalized(key, self.key)

    def queries(
        self, query: Float[Tensor, "batch heads queries head_dim"]
    ) -> Float[Tensor, "batch heads queries head_dim"]:
        """Normalize queries alone, if the keys are in a cache."""
        return self._normalized(query, self.query)

    def _normalized(self, heads: Tensor, norm: nn.Module) -> Tensor:
        if not self.joined:
            return norm(heads)
        joined = norm(heads.transpose(1, 2).flatten(2))  # [batch, length, heads · head_dim]
        return joined.unflatten(-1, (heads.shape[1], -1)).transpose(1, 2)


def _of_texts(args: Sequence[Any], options: Mapping[str, Any]) -> str | None:
    """Return the class of the ladder that is meant by the arguments of a class of a text."""
    if {"d_in", "d_out", "context_length", "dropout", "qkv_bias"} & set(options) or len(args) > 4:
        return "MultiHeadAttention(d_in, d_out, context_length, dropout, num_heads)"
    if len(args) == 4 and ("num_heads" in options or isinstance(args[3], float)):
        return "MultiHeadAttention(d_in, d_out, context_length, dropout, num_heads)"
    if "p" in options or (len(args) == 3 and isinstance(args[2], float)):
        return "EncoderMultiHeadAttention(d_model, num_heads, p)"
    return None


def _named_by_texts(build: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """Refuse the arguments of the classes that texts call by the same name, and name these."""

    @wraps(build)
    def checked(*args: _Arguments.args, **options: _Arguments.kwargs) -> None:
        meant = _of_texts(args[1:], options)
        if meant is not None:
            raise TypeError(
                "gh.MultiHeadAttention needs d_model and num_heads, got the arguments of a "
                f"tutorial's class. Use glasshead.ladder.{meant}."
            )
        build(*args, **options)

    return checked


@followed_as(LAYERS)
class MultiHeadAttention(nn.Module):
    """Multi-head attention: H = [head_1, head_2, …] W_oᵀ + b_o, head_h = attention(Q_h, K_h, V_h).

    Q = X_q W_qᵀ + b_q, K = X_k W_kᵀ + b_k and V = X_v W_vᵀ + b_v are cut into heads of `head_dim`
    columns each. Self-attention takes one input, cross-attention two: the keys' is also the
    values', unless there is a third.

    Args:
        d_model: The width of the result, and of the inputs.
        num_heads: The number of query heads.
        num_kv_heads: The number of key/value heads, shared by query heads; `num_heads` if not
            given. Query head i reads head i // (num_heads / num_kv_heads).
        head_dim: The width of a head; d_model / num_heads if not given.
        d_input: The width of all three inputs, or of each; `d_model` if not given.
        attention: The attention settings: score, mask, normalizer, …; `Attention()` if not given.
        rotary: Rotary position embedding of queries and keys.
        query_key_norm: Norms of queries and keys, before they are rotated.
        bias: Whether the projections add biases.

    Errors: a ValueError if the numbers of heads and widths do not divide; a TypeError if an
    argument is of another type, or it is called as the tutorial's class by this name, which is
    `glasshead.ladder.MultiHeadAttention`.

    Source: Vaswani et al. 2017, section 3.2.2; shared keys and values: Ainslie et al. 2023 (GQA),
    section 2.2. Heads as wide as the model, which one tutorial on encoders has, are
    `head_dim=d_model`.

    >>> import torch
    >>> import glasshead as gh
    >>> layer = gh.MultiHeadAttention(12, num_heads=3, attention=gh.Attention(mask=gh.causal()))
    >>> layer(torch.rand(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    >>> layer.trace(torch.rand(2, 5, 12)).weights.shape
    torch.Size([2, 3, 5, 5])
    """

    @_named_by_texts
    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        *,
        d_input: int | tuple[int, int, int] | None = None,
        attention: Attention | None = None,
        rotary: Rotary | None = None,
        query_key_norm: QueryKeyNorm | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.d_model = whole_number(d_model, "d_model", least=1)
        self.num_heads = whole_number(num_heads, "num_heads", least=1)
        num_kv_heads = self.num_heads if num_kv_heads is None else num_kv_heads
        self.num_kv_heads = whole_number(num_kv_heads, "num_kv_heads", least=1)
        check_divides("num_kv_heads", self.num_kv_heads, "num_heads", self.num_heads)
        if head_dim is None:
            check_divides("num_heads", self.num_heads, "d_model", self.d_model)
            head_dim = self.d_model // self.num_heads
        self.head_dim = whole_number(head_dim, "head_dim", least=1)
        asking, answering = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.projections = Projections(
            _three_widths(self.d_model if d_input is None else d_input),
            (asking, answering, answering),
            bias=bias,
        )
        self.attention = Attention() if attention is None else _check_is(attention, Attention)
        self.rotary = None if rotary is None else _check_is(rotary, Rotary)
        norm = query_key_norm
        self.query_key_norm = None if norm is None else _check_is(norm, QueryKeyNorm)
        self.output: nn.Module = nn.Linear(asking, self.d_model, bias=bias)

    def forward(
        self,
        query: Float[Tensor, "batch queries d_query"],
        key: Float[Tensor, "batch keys d_key"] | None = None,
        value: Float[Tensor, "batch keys d_value"] | None = None,
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch queries d_model"]:
        """Compute the attention output of each query.

        Args:
            query: The queries' input.
            key: The keys' input; the queries' input if not given: self-attention.
            value: The values' input; the keys' input if not given.
            mask: Of this call, and-ed with the attention's own.
            bias: Of this call, added to the attention's own.
            cache: Of self-attention, holds the keys and values of the tokens before these, and
                takes in their own; of cross-attention, is filled once, and read from then on.
                Masks and biases count all tokens that were fed, whichever keys are left.

        Errors: a TypeError or ValueError if an input is not numeric, or has not three axes or not
        its width, and as for a call of `Attention`; a ValueError for a cache of cross-attention
        with a rotary, and for a policy with a rule that reads more than distances.
        """
        heads = self.heads(query, key, value, cache=cache)
        if cache is None:
            context = self.attention(*heads, mask=mask, bias=bias)
        else:
            context = cache.attend(self.attention, heads, mask=mask, bias=bias)
        return self.output(context.transpose(1, 2).flatten(2))  # [batch, queries, d_model]

    def trace(
        self,
        query: Float[Tensor, "batch queries d_query"],
        key: Float[Tensor, "batch keys d_key"] | None = None,
        value: Float[Tensor, "batch keys d_value"] | None = None,
        **options: Any,
    ) -> Trace:
        """Compute every step of the attention between the projections (`Attention.trace`)."""
        return self.attention.trace(*self.heads(query, key, value), **options)

    def observe(
        self,
        query: Float[Tensor, "batch queries d_query"],
        key: Float[Tensor, "batch keys d_key"] | None = None,
        value: Float[Tensor, "batch keys d_value"] | None = None,
        *,
        statistics: Statistics,
        **options: Any,
    ) -> Observation:
        """Compute statistics of the weights, as `Attention.observe`; the context is per head."""
        return self.attention.observe(*self.heads(query, key, value), statistics, **options)

    def weights(
        self,
        query: Float[Tensor, "batch queries d_query"],
        key: Float[Tensor, "batch keys d_key"] | None = None,
        **options: Any,
    ) -> Weights:
        """Return the lazy matrix of weights, as `Attention.weights` does."""
        given = (query, query if key is None else key)
        _check_inputs(given, self.projections.inputs)
        q, k = (self._split(x) for x in self.projections(*given))
        return self.attention.weights(*self._placed(q, k, 0), **options)

    def heads(
        self,
        query: Float[Tensor, "batch queries d_query"],
        key: Float[Tensor, "batch keys d_key"] | None = None,
        value: Float[Tensor, "batch keys d_value"] | None = None,
        *,
        cache: KeyValueCache | None = None,
    ) -> tuple[
        Float[Tensor, "batch heads queries head_dim"],
        Float[Tensor, "batch kv_heads keys head_dim"],
        Float[Tensor, "batch kv_heads keys head_dim"],
    ]:
        """Project the inputs to the queries, keys and values of the heads."""
        crosses = key is not None
        key = query if key is None else key
        given = (query, key, key if value is None else value)
        _check_inputs(given, self.projections.inputs)
        if crosses and cache is not None and self.rotary is not None:
            raise ValueError(
                "a cache of cross-attention needs an attention without rotary, as the positions "
                "of its queries are not known."
            )
        if crosses and cache is not None and cache.length:
            (q,) = self.projections(query)
            q, norm = self._split(q), self.query_key_norm
            return q if norm is None else norm.queries(q), *cache.held
        start = 0 if cache is None or crosses else cache.length
        q, k, v = self._project_three(given, start) if crosses else self._project_one(query, start)
        if cache is None:
            return q, k, v
        return q, *cache.append(k, v, None if crosses else lookback(self.attention))

    @classmethod
    def from_module(cls, module: nn.Module, *, mask: Mask | None = None) -> Self:
        """Copy `nn.MultiheadAttention`, or a tutorial's class, with its weights.

        A tutorial's class is one of the ladder, or your own with matrices by the tutorials' names,
        such as `W_query`, `W_key`, `W_value` and `out_proj`: linear layers, or parameters that are
        applied as x @ W. Your own is run on random numbers, which show its score and its mask.
        Classes without an output projection have none here. A mask is and-ed with the module's own.

        Errors: a TypeError for another module; a ValueError for a setting that there is none of
        here, and for a class that computes another thing than attention of its matrices.

        >>> from torch import nn
        >>> MultiHeadAttention.from_module(nn.MultiheadAttention(6, 2)).head_dim
        3
        """
        from glasshead.layers.proven_weights import read_attention
        from glasshead.layers.torch_weights import copied_linear, copy_into

        read = read_attention(module)
        weights = [weight for weight, _ in read.maps]
        rows = len(weights[0])
        layer = cls(
            d_model=rows if read.output is None else len(read.output[0]),
            num_heads=read.num_heads,
            head_dim=rows // read.num_heads,
            d_input=(weights[0].shape[1], weights[1].shape[1], weights[2].shape[1]),
            attention=Attention(
                score=read.score, mask=combined([read.mask, mask]), dropout=read.dropout
            ),
            bias=any(bias is not None for _, bias in read.maps),
        )
        layer.to(weights[0])
        layer.output = nn.Identity() if read.output is None else copied_linear(*read.output)
        for mine, theirs in zip(layer.projections.maps(), read.maps, strict=True):
            for to, of in zip(mine, theirs, strict=True):
                copy_into(to, weights[0].new_zeros(()) if of is None else of)
        return layer.train(module.training)

    def _project_one(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Project one input to queries, keys and values, with one product and one rotation."""
        if not self.projections.one:
            return self._project_three((x, x, x), start)
        asking, answering = self.num_heads, self.num_kv_heads
        heads = self._split(self.projections.together(x))  # [batch, all heads, length, head_dim]
        turning, v = heads.split([asking + answering, answering], dim=1)
        if self.query_key_norm is None:
            q, k = self._rotate(turning, start).split([asking, answering], dim=1)
            return q, k, v
        q, k = turning.split([asking, answering], dim=1)
        return *self._placed(q, k, start), v

    def _project_three(self, given: Sequence[Tensor], start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Project separate inputs to queries, keys and values."""
        q, k, v = (self._split(x) for x in self.projections(*given))
        return *self._placed(q, k, start), v

    def _placed(self, query: Tensor, key: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Normalize and rotate queries and keys, the first of which are at position `start`."""
        if self.query_key_norm is not None:
            query, key = self.query_key_norm(query, key)
        return self._rotate(query, start), self._rotate(key, start)

    def _split(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _rotate(self, heads: Tensor, start: int) -> Tensor:
        return heads if self.rotary is None else self.rotary(heads, start)

    def extra_repr(self) -> str:
        shared = (
            "" if self.num_kv_heads == self.num_heads else f", num_kv_heads={self.num_kv_heads}"
        )
        return f"{self.d_model}, num_heads={self.num_heads}{shared}, head_dim={self.head_dim}"


_Part = TypeVar("_Part", bound=nn.Module)


def _check_is(part: Any, kind: type[_Part]) -> _Part:
    """Check the type of a module, and return it."""
    if not isinstance(part, kind):
        name = kind.__name__
        raise TypeError(f"{name.lower()} must be an object of {name}, got {part!r}.")
    return part


def _three_widths(given: Any) -> tuple[int, ...]:
    """Return the widths of query, key and value from one width or three.

    Errors: a TypeError or ValueError if `given` is neither one width nor three.
    """
    widths = tuple(given) if isinstance(given, list | tuple) else (given,) * 3
    if len(widths) != 3:
        raise ValueError(
            f"d_input must be one width, or the widths of query, key and value, got {given}."
        )
    return tuple(whole_number(width, "d_input", least=1) for width in widths)


def _check_inputs(given: Sequence[Tensor], widths: Sequence[int]) -> None:
    """Check that query, key and value are `[batch, length, width]` with these widths."""
    for name, x, width in zip(("query", "key", "value"), given, widths, strict=False):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(
                f"{name} must be a tensor of floating-point numbers, got {kind}. Embed the tokens "
                "first."
            )
        if x.ndim != 3 or x.shape[-1] != width:
            raise ValueError(
                f"{name} must be [batch, length, {width}], got {list(x.shape)}. Pass one text as "
                f"{name}[None], or build with d_input equal to its width."
            )
