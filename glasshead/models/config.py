"""Configs: the hyperparameters of a model, as JSON-serializable values."""

import dataclasses
import types
from dataclasses import dataclass
from typing import Any, Literal, Self, Union, get_args, get_origin

from glasshead.drawing.printable import nearest
from glasshead.layers.positions import scaling_of
from glasshead.recipe.masks import Mask, window
from glasshead.recipe.validation import check_divides, one_of, positive, probability, whole_number

Positions = Literal["learned", "sinusoidal", "rotary", "alibi", "none"]
FeedForwardKind = Literal["relu", "gelu", "gelu_tanh", "swiglu", "geglu", "geglu_tanh", "none"]
Order = Literal["pre", "post", "sandwich", "res_post", "parallel"]
GATED = ("swiglu", "geglu", "geglu_tanh")
# Upper limits, well above those of the largest models.
_MOST = {
    "vocab_size": 2**24,
    "context_length": 2**30,
    "d_model": 2**20,
    "num_heads": 2**14,
    "num_layers": 2**12,
    "num_decoder_layers": 2**12,
    "num_kv_heads": 2**14,
    "head_dim": 2**20,
    "d_hidden": 2**24,
    "num_answers": 2**20,
    "segments": 2**20,
}


@dataclass(frozen=True, kw_only=True)
class LocalLayers:
    """Layers that attend to near tokens only, among those that attend to all.

    Attributes:
        layers: Their numbers, from 0.
        neighbours: Number of tokens that a token sees on each side, itself not counted; a causal
            model shows none after it.
        rotary_base: Base of their rotary angles, which are not scaled; None: rotary angles as in
            the other layers.

    Errors: a ValueError or TypeError for an invalid value.

    >>> LocalLayers(layers=[0, 2], neighbours=4).layers
    (0, 2)
    """

    layers: tuple[int, ...]
    neighbours: int
    rotary_base: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.layers, list | tuple) or not self.layers:
            raise ValueError(
                f"local.layers must be a list of numbers such as [0, 2], got {self.layers!r}."
            )
        numbers = tuple(whole_number(layer, "local.layers") for layer in self.layers)
        object.__setattr__(self, "layers", numbers)
        object.__setattr__(
            self, "neighbours", whole_number(self.neighbours, "local.neighbours", most=2**30)
        )
        if self.rotary_base is not None:
            base = positive(self.rotary_base, "local.rotary_base")
            object.__setattr__(self, "rotary_base", base)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The config shared by all models.

    Attributes:
        vocab_size: Vocabulary size, 2²⁴ at most.
        context_length: Maximum number of tokens of a text, 2³⁰ at most.
        d_model: Model width, 2²⁰ at most.
        num_heads: Number of query heads, 2¹⁴ at most.
        num_layers: Number of blocks, 4096 at most.
        num_kv_heads: Number of key-value heads; `num_heads` if None.
        head_dim: Width of a head; d_model / num_heads if None.
        d_hidden: Hidden width of the feed-forward; 4 · d_model if None, or 8/3 · d_model where it
            is gated, which gives as many parameters.
        positions: Position encoding: "learned", "sinusoidal", "rotary", "alibi" or "none".
        rotary_base: Base of the rotary angles.
        rotary_scaling: Scaling of the rotary angles for longer texts, as `{"kind": "linear",
            "factor": 2.0}`; the kinds, "linear", "llama3" and "yarn", are in `layers.positions`.
        rotary_dim: Number of each head's numbers that are rotated, the first ones; all if None.
        local: Layers that see near tokens only, as `{"layers": [0, 2], "neighbours": 4}`; see
            `LocalLayers`.
        norm: "layer" or "rms".
        order: Norm placement: "pre" or "post"; "sandwich", before and after each sublayer, as in
            Gemma 2; "res_post", after it, as in OLMo 2; "parallel", before attention and
            feed-forward, which read the same input, as in GPT-NeoX.
        query_key_norm: Norms of queries and keys: "none", "head", of each head by itself, as in
            Qwen3, or "joined", of all heads together, as in OLMo 2.
        score_scale: Factor of the inner products of queries and keys; 1/√width if None.
        softcap: c of c · tanh(score / c), as in Gemma 2; None: scores are left as they are.
        feed_forward: "relu", "gelu", "gelu_tanh", GPT-2's approximation, gated as "swiglu", "geglu"
            or "geglu_tanh", or "none" for attention only.
        bias: Whether linear maps and norms have biases.
        qkv_bias: Whether query, key and value projections have biases; `bias` if None.
        output_bias: Whether output projections of attention have biases; `bias` if None.
        norm_eps: Epsilon of the norms; PyTorch's default if None.
        dropout: Dropout probability of embeddings and sublayer outputs.
        attention_dropout: Dropout probability of attention weights; above 0 it slows down PyTorch's
            fused kernel.

    Errors: a ValueError or TypeError for an invalid value.
    """

    vocab_size: int
    context_length: int = 256
    d_model: int = 128
    num_heads: int = 4
    num_layers: int = 4
    num_kv_heads: int | None = None
    head_dim: int | None = None
    d_hidden: int | None = None
    positions: Positions = "learned"
    rotary_base: float = 10_000.0
    rotary_scaling: dict[str, Any] | None = dataclasses.field(default=None, hash=False)
    rotary_dim: int | None = None
    local: LocalLayers | None = None
    norm: Literal["layer", "rms"] = "layer"
    order: Order = "pre"
    query_key_norm: Literal["none", "head", "joined"] = "none"
    score_scale: float | None = None
    softcap: float | None = None
    feed_forward: FeedForwardKind = "gelu"
    bias: bool = True
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    norm_eps: float | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = _checked(field.name, getattr(self, field.name), field.type)
            # Converted to plain, JSON-serializable numbers.
            object.__setattr__(self, field.name, value)
        if self.head_dim is None:
            check_divides("num_heads", self.num_heads, "d_model", self.d_model)
        if self.num_kv_heads is not None:
            check_divides("num_kv_heads", self.num_kv_heads, "num_heads", self.num_heads)
        if self.positions == "rotary" and self.rotary_dim is None and self.width % 2:
            raise ValueError(
                f"positions='rotary' needs heads of an even width, got {self.width}. Choose "
                "another num_heads or head_dim."
            )
        local_base = None if self.local is None else self.local.rotary_base
        for name, value in (
            ("rotary_scaling", self.rotary_scaling),
            ("rotary_dim", self.rotary_dim),
            ("local.rotary_base", local_base),
        ):
            if value is not None and self.positions != "rotary":
                raise ValueError(f"{name} needs positions='rotary', got {self.positions!r}.")
        if self.rotary_dim is not None and (self.rotary_dim % 2 or self.rotary_dim > self.width):
            raise ValueError(
                f"rotary_dim must be an even number up to the width of a head, {self.width}, got "
                f"{self.rotary_dim}."
            )
        if self.local is not None and max(self.local.layers) >= self.num_layers:
            raise ValueError(
                f"local.layers must be numbers from 0 to {self.num_layers - 1}, as "
                f"num_layers={self.num_layers}, got {max(self.local.layers)}."
            )

    @property
    def width(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def hidden(self) -> int:
        """Hidden width of the feed-forward."""
        if self.d_hidden is not None:
            return self.d_hidden
        return 8 * self.d_model // 3 if self.feed_forward in GATED else 4 * self.d_model

    def is_local(self, layer: int) -> bool:
        """Return whether a layer sees near tokens only."""
        return self.local is not None and layer in self.local.layers

    def mask(self, layer: int) -> Mask | None:
        """Return the mask of the self-attention of a layer; None: all see all."""
        if self.local is None or not self.is_local(layer):
            return None
        return window(before=self.local.neighbours, after=self.local.neighbours)

    @property
    def least_parameters(self) -> int:
        """Number of parameters of the matrices, which are nearly all, without building the model.

        >>> TransformerConfig(vocab_size=11, d_model=12, num_heads=3).least_parameters
        10116
        """
        positions = self.context_length if self.positions == "learned" else 0
        return (self.vocab_size + positions) * self.d_model + self.num_layers * self._block(1)

    def _block(self, attentions: int) -> int:
        """Count the parameters of the matrices of a block."""
        heads = self.num_heads + (self.num_kv_heads or self.num_heads)
        maps = 0 if self.feed_forward == "none" else 3 if self.feed_forward in GATED else 2
        return self.d_model * (2 * attentions * heads * self.width + maps * self.hidden)

    def to_json(self) -> dict[str, Any]:
        """Return the config as JSON-serializable data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Build a config from the data of `to_json`.

        Errors: a ValueError or TypeError if a value is missing, unknown or invalid.
        """
        if not isinstance(values, dict):
            kind = "null" if values is None else type(values).__name__
            raise TypeError(f"{cls.__name__} must be an object of names and values, got {kind}.")
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name in values:
            if name not in fields:
                raise ValueError(f"{cls.__name__} has no {name!r}{closest(name, fields)}")
        for name, field in fields.items():
            if name not in values and field.default is dataclasses.MISSING:
                raise ValueError(f"{cls.__name__} must have {name}, which is missing.")
        return cls(**values)


def closest(name: str, names: Any) -> str:
    """Return the end of an error: ". Did you mean …?", or ". Use one of …." with all names."""
    near = nearest(name, names)
    return f". Did you mean {near!r}?" if near else f". Use one of {', '.join(names)}."


def _checked(name: str, value: Any, kind: Any) -> Any:
    choices = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        if value is None and type(None) in choices:
            return None
        kind = next(choice for choice in choices if choice is not type(None))
    if get_origin(kind) is Literal:
        # On a command line the word "none" and the value None are the same.
        value = "none" if value is None and "none" in choices else value
        value = one_of(value, name, choices)
    elif get_origin(kind) is dict:
        scaling_of(value)
        return dict(value or {})
    elif kind is LocalLayers:
        return _local(value)
    elif kind is bool:
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be true or false, got {value!r}.")
    elif kind is int:
        return whole_number(value, name, least=1, most=_MOST.get(name))
    else:
        return probability(value, name) if "dropout" in name else positive(value, name)
    return value


def _local(value: Any) -> LocalLayers:
    """Return local layers from themselves, or from the object that JSON has of them."""
    if isinstance(value, LocalLayers):
        return value
    names = [field.name for field in dataclasses.fields(LocalLayers)]
    if not isinstance(value, dict) or not {"layers", "neighbours"} <= set(value) <= set(names):
        raise ValueError(
            f"local must be an object of layers, neighbours and perhaps rotary_base, got {value!r}."
        )
    return LocalLayers(**value)
