"""GPT-2, OPT, GPT-NeoX, Llama and its kin, and Gemma: convert their configs and tensors to ours."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from torch import Tensor

from glasshead.models.language_model import LanguageModelConfig
from glasshead.models.pretrained.folder import (
    BOTH,
    FEED_FORWARDS,
    GATED_FEED_FORWARDS,
    WEIGHT,
    ConfigValues,
    TensorSource,
    below,
    of_blocks,
    prefix,
    same,
    transposed,
)
from glasshead.models.pretrained.rope import local_base, rotary, sliding_layers, windows


class DecoderFamily(ABC):
    """The conversion of a family of decoders.

    Attributes:
        unused: Patterns of stored tensors that are not used.
        outputs: Names of the output matrix, which are stored beside a tied one, too.
    """

    unused: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ("lm_head.weight",)

    @abstractmethod
    def config(self, values: ConfigValues) -> LanguageModelConfig:
        """Convert the config.

        Errors: a ValueError for an unsupported value.
        """

    @abstractmethod
    def sources(self, config: LanguageModelConfig, names: Iterable[str]) -> dict[str, TensorSource]:
        """Return the source of each of our tensors; `names` are the stored ones."""

    def ignored(self, config: LanguageModelConfig) -> tuple[str, ...]:
        """Return patterns of stored tensors that are not used."""
        return (*self.unused, *self.outputs) if config.tied else self.unused


class GPT2(DecoderFamily):
    """GPT-2.

    Source: Radford et al. 2019 (Language models are unsupervised multitask learners), section 2.3.
    """

    # Causal masks, which old files store as tensors.
    unused = ("*.attn.bias", "*.attn.masked_bias")

    def config(self, values: ConfigValues) -> LanguageModelConfig:
        values.only("scale_attn_weights", True)
        values.only("scale_attn_by_inverse_layer_idx", False)
        values.only("add_cross_attention", False)
        width = values.whole("n_embd")
        return LanguageModelConfig(
            vocab_size=values.whole("vocab_size"),
            context_length=values.whole("n_positions", 1024),
            d_model=width,
            num_heads=values.whole("n_head"),
            num_layers=values.whole("n_layer"),
            d_hidden=values.whole("n_inner", 4 * width),
            feed_forward=values.choice("activation_function", "gelu_new", FEED_FORWARDS),  # type: ignore[arg-type]
            norm_eps=values.number("layer_norm_epsilon", 1e-5),
            dropout=values.number("resid_pdrop", 0.1),
            attention_dropout=values.number("attn_pdrop", 0.1),
            tied=values.flag("tie_word_embeddings", default=True),
        )

    def sources(self, config: LanguageModelConfig, names: Iterable[str]) -> dict[str, TensorSource]:
        at = prefix(names, "transformer.")
        found = {
            "embedding.tokens.weight": same(f"{at}wte.weight"),
            "embedding.positions.table.weight": same(f"{at}wpe.weight"),
            "norm.weight": same(f"{at}ln_f.weight"),
            "norm.bias": same(f"{at}ln_f.bias"),
        }
        if not config.tied:
            found["output.weight"] = same("lm_head.weight")
        for layer in range(config.num_layers):
            ours, theirs = f"blocks.{layer}", f"{at}h.{layer}"
            for one, other in (
                ("attention.projections.stacks.0", "attn.c_attn"),
                ("attention.output", "attn.c_proj"),
                ("feed_forward.hidden", "mlp.c_fc"),
                ("feed_forward.output", "mlp.c_proj"),
            ):
                found[f"{ours}.{one}.weight"] = transposed(f"{theirs}.{other}.weight")
                found[f"{ours}.{one}.bias"] = same(f"{theirs}.{other}.bias")
            for one, other in (("around_attention", "ln_1"), ("around_feed_forward", "ln_2")):
                for part in BOTH:
                    found[f"{ours}.{one}.norm.{part}"] = same(f"{theirs}.{other}.{part}")
        return found


class OPT(DecoderFamily):
    """OPT.

    Source: Zhang et al. 2022 (OPT), section 2.1.
    """

    # Rows of the table of positions that no token uses.
    _unused_positions = 2

    def config(self, values: ConfigValues) -> LanguageModelConfig:
        d_model = values.whole("hidden_size")
        values.only("word_embed_proj_dim", d_model)
        values.only("enable_bias", True)
        values.only("layer_norm_elementwise_affine", True)
        values.only("_remove_final_layer_norm", False)
        before = values.flag("do_layer_norm_before", default=True)
        return LanguageModelConfig(
            vocab_size=values.whole("vocab_size"),
            context_length=values.whole("max_position_embeddings", 2048),
            d_model=d_model,
            num_heads=values.whole("num_attention_heads"),
            num_layers=values.whole("num_hidden_layers"),
            d_hidden=values.whole("ffn_dim"),
            order="pre" if before else "post",
            feed_forward=values.choice("activation_function", "relu", FEED_FORWARDS),  # type: ignore[arg-type]
            norm_eps=1e-5,
            dropout=values.number("dropout", 0.1),
            attention_dropout=values.number("attention_dropout", 0.0),
            tied=values.flag("tie_word_embeddings", default=True),
        )

    def sources(self, config: LanguageModelConfig, names: Iterable[str]) -> dict[str, TensorSource]:
        at = f"{prefix(names, 'model.')}decoder."
        found = {
            "embedding.tokens.weight": same(f"{at}embed_tokens.weight"),
            "embedding.positions.table.weight": below(
                f"{at}embed_positions.weight", self._unused_positions
            ),
        }
        if not config.tied:
            found["output.weight"] = same("lm_head.weight")
        if config.order == "pre":
            found |= {f"norm.{part}": same(f"{at}final_layer_norm.{part}") for part in BOTH}
        return found | of_blocks(
            config.num_layers,
            f"{at}layers",
            [
                ("attention.projections.stacks.0", [f"self_attn.{x}_proj" for x in "qkv"], BOTH),
                ("attention.output", ["self_attn.out_proj"], BOTH),
                ("feed_forward.hidden", ["fc1"], BOTH),
                ("feed_forward.output", ["fc2"], BOTH),
                ("around_attention.norm", ["self_attn_layer_norm"], BOTH),
                ("around_feed_forward.norm", ["final_layer_norm"], BOTH),
            ],
        )


class GPTNeoX(DecoderFamily):
    """GPT-NeoX, which Pythia is, too.

    Source: Black et al. 2022 (GPT-NeoX-20B), section 2.1.
    """

    # Causal masks and rotary frequencies, which old files store as tensors.
    unused = ("*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq")
    # The output matrix has had two names.
    outputs = ("embed_out.weight", "lm_head.weight")

    def config(self, values: ConfigValues) -> LanguageModelConfig:
        d_model, heads = values.whole("hidden_size"), values.whole("num_attention_heads")
        context = values.whole("max_position_embeddings", 2048)
        biased = values.flag("attention_bias", default=True)
        parallel = values.flag("use_parallel_residual", default=True)
        return LanguageModelConfig(
            **values.sizes(),
            context_length=context,
            positions="rotary",
            **rotary(
                values,
                context=context,
                base=values.number("rotary_emb_base", 10_000.0),
                width=max(1, d_model // heads),
                share=values.number("rotary_pct", 0.25),
            ),
            order="parallel" if parallel else "pre",
            feed_forward=values.choice("hidden_act", "gelu", FEED_FORWARDS),  # type: ignore[arg-type]
            qkv_bias=biased,
            output_bias=biased,
            norm_eps=values.number("layer_norm_eps", 1e-5),
            dropout=values.number("hidden_dropout", 0.0),
            attention_dropout=values.number("attention_dropout", 0.0),
            tied=values.flag("tie_word_embeddings", default=False),
        )

    def sources(self, config: LanguageModelConfig, names: Iterable[str]) -> dict[str, TensorSource]:
        names = set(names)
        at = prefix(names, "gpt_neox.")
        found = {
            "embedding.tokens.weight": same(f"{at}embed_in.weight"),
            "norm.weight": same(f"{at}final_layer_norm.weight"),
            "norm.bias": same(f"{at}final_layer_norm.bias"),
        }
        if not config.tied:
            stored = (one for one in self.outputs if one in names)
            found["output.weight"] = same(next(stored, self.outputs[0]))

        def grouped(stored: Tensor) -> Tensor:
            """Group the rows by queries, keys and values, which are stored head by head."""
            return stored.unflatten(0, (config.num_heads, 3, -1)).transpose(0, 1).flatten(0, 2)

        biased = BOTH if config.qkv_bias is not False else WEIGHT
        for layer in range(config.num_layers):
            for part in biased:
                found[f"blocks.{layer}.attention.projections.stacks.0.{part}"] = TensorSource(
                    (f"{at}layers.{layer}.attention.query_key_value.{part}",), grouped
                )
        return found | of_blocks(
            config.num_layers,
            f"{at}layers",
            [
                ("attention.output", ["attention.dense"], biased),
                ("feed_forward.hidden", ["mlp.dense_h_to_4h"], BOTH),
                ("feed_forward.output", ["mlp.dense_4h_to_h"], BOTH),
                ("around_attention.norm", ["input_layernorm"], BOTH),
                ("around_feed_forward.norm", ["post_attention_layernorm"], BOTH),
            ],
        )


# Defaults of Mistral, Qwen2 and Qwen3: the window, and the number of Qwen's layers without one.
_WINDOW, _BEFORE_WINDOWS = 4096, 28
_EPS = {"phi3": 1e-5, "olmo2": 1e-5}
_NORMED = ("query", "key")
# Norms around attention and feed-forward, by their order.
_NORMS = {
    "pre": {
        "around_attention.norm": "input_layernorm",
        "around_feed_forward.norm": "post_attention_layernorm",
    },
    "res_post": {
        "around_attention.norm": "post_attention_layernorm",
        "around_feed_forward.norm": "post_feedforward_layernorm",
    },
    "sandwich": {
        "around_attention.norm": "input_layernorm",
        "around_attention.after": "post_attention_layernorm",
        "around_feed_forward.norm": "pre_feedforward_layernorm",
        "around_feed_forward.after": "post_feedforward_layernorm",
    },
}


class Llama(DecoderFamily):
    """Llama, Mistral, Qwen2, Qwen3, Phi-3 and OLMo 2.

    Source: Touvron et al. 2023 (LLaMA), section 2.2; Llama Team 2024 (The Llama 3 herd of models),
    section 3.2; Jiang et al. 2023 (Mistral 7B), section 2; Yang et al. 2024 (Qwen2), section 2.2;
    Yang et al. 2025 (Qwen3), section 2; Abdin et al. 2024 (Phi-3), section 2; Team OLMo 2025 (2
    OLMo 2 Furious), section 2.
    """

    # Rotary frequencies, which old files store as tensors.
    unused = ("*.rotary_emb.inv_freq",)

    def config(self, values: ConfigValues) -> LanguageModelConfig:
        values.only("hidden_act", "silu")
        kind, heads = values.get("model_type"), values.whole("num_attention_heads")
        context = values.whole("max_position_embeddings", 4096 if kind == "phi3" else 2048)
        width = max(1, values.whole("hidden_size") // heads)
        width = values.whole("head_dim", 128 if kind == "qwen3" else width)
        of_phi3: dict[str, Any] = {"width": width, "scalings": {}} if kind == "phi3" else {}
        biased = values.flag("attention_bias", default=False)
        return LanguageModelConfig(
            **values.sizes(),
            context_length=context,
            num_kv_heads=values.whole("num_key_value_heads", heads),
            head_dim=width,
            positions="rotary",
            **rotary(values, context=context, **of_phi3),
            norm="rms",
            norm_eps=values.number("rms_norm_eps", _EPS.get(str(kind), 1e-6)),
            order="res_post" if kind == "olmo2" else "pre",
            query_key_norm={"qwen3": "head", "olmo2": "joined"}.get(str(kind), "none"),  # type: ignore[arg-type]
            feed_forward="swiglu",
            bias=values.flag("mlp_bias", default=False),
            qkv_bias=biased or kind == "qwen2",
            output_bias=biased,
            dropout=values.number("resid_pdrop", 0.0),
            attention_dropout=values.number("attention_dropout", 0.0),
            tied=values.flag("tie_word_embeddings", default=False),
            **_windows(values),
        )

    def sources(self, config: LanguageModelConfig, names: Iterable[str]) -> dict[str, TensorSource]:
        names = set(names)
        at = prefix(names, "model.")
        found = {
            "embedding.tokens.weight": same(f"{at}embed_tokens.weight"),
            "norm.weight": same(f"{at}norm.weight"),
        }
        if not config.tied:
            found["output.weight"] = same("lm_head.weight")
        queries, gates = (
            [f"self_attn.{one}_proj" for one in "qkv"],
            ["mlp.gate_proj", "mlp.up_proj"],
        )
        if f"{at}layers.0.self_attn.qkv_proj.weight" in names:
            # Phi-3 has them stacked as we do.
            queries, gates = ["self_attn.qkv_proj"], ["mlp.gate_up_proj"]
        norms = dict(_NORMS[config.order])
        if config.query_key_norm != "none":
            norms |= {
                f"attention.query_key_norm.{one}": f"self_attn.{one[0]}_norm" for one in _NORMED
            }
        modules = [
            ("attention.projections.stacks.0", queries, config.qkv_bias),
            ("attention.output", ["self_attn.o_proj"], config.output_bias),
            ("feed_forward.hidden.stacks.0", gates, config.bias),
            ("feed_forward.output", ["mlp.down_proj"], config.bias),
            *((ours, [theirs], False) for ours, theirs in norms.items()),
        ]
        return found | of_blocks(
            config.num_layers,
            f"{at}layers",
            [(ours, theirs, BOTH if biased else WEIGHT) for ours, theirs, biased in modules],
        )


def _windows(values: ConfigValues) -> dict[str, Any]:
    """Return the fields of our config for windows."""
    kind = values.get("model_type")
    of_qwen = kind in ("qwen2", "qwen3")
    # Null means that there is none.
    default = _WINDOW if kind == "mistral" or of_qwen else None
    default = None if "sliding_window" in values else default
    if kind in ("llama", "olmo2") or values.get("sliding_window", default) is None:
        return {}
    if of_qwen and not values.flag("use_sliding_window", default=False):
        return {}
    before = values.number("max_window_layers", _BEFORE_WINDOWS) if of_qwen else 0
    usual = [layer >= before for layer in range(values.whole("num_hidden_layers"))]
    sliding = sliding_layers(values, usual) if of_qwen or kind == "mistral" else usual
    return windows(sliding, values.whole("sliding_window", default) - 1)


# Softcaps where a config of Gemma 2 tells none; Gemma 3 has none.
_SCORE_CAP, _LOGIT_CAP = 50.0, 30.0


class Gemma(Llama):
    """Gemma 2 and 3.

    Source: Gemma Team 2024 (Gemma 2), section 2; Gemma Team 2025 (Gemma 3), section 2.
    """

    def config(self, values: ConfigValues) -> LanguageModelConfig:
        values.only("use_bidirectional_attention", False)
        second = values.get("model_type") == "gemma2"
        context = values.whole("max_position_embeddings", 8192 if second else 131_072)
        d_model, width = values.whole("hidden_size"), values.whole("head_dim", 256)
        scalar = values.number("query_pre_attn_scalar", 256)
        if scalar <= 0:
            raise ValueError(
                f"query_pre_attn_scalar in {values.where} must be above 0, got {scalar}."
            )
        biased = values.flag("attention_bias", default=False)
        # Every second layer of Gemma 2 sees all, and every sixth one of Gemma 3.
        every = 2 if second else values.whole("sliding_window_pattern", 6)
        usual = [bool((layer + 1) % every) for layer in range(values.whole("num_hidden_layers"))]
        near_base = None if second else local_base(values, "rope_local_base_freq", 10_000.0)
        return LanguageModelConfig(
            **values.sizes(),
            context_length=context,
            num_kv_heads=values.whole("num_key_value_heads", 4),
            head_dim=width,
            positions="rotary",
            **rotary(values, context=context, base=10_000.0 if second else 1e6),
            **windows(
                sliding_layers(values, usual), values.whole("sliding_window", 4096) - 1, near_base
            ),
            norm="rms",
            norm_eps=values.number("rms_norm_eps", 1e-6),
            order="sandwich",
            query_key_norm="none" if second else "head",
            score_scale=None if scalar == width else scalar**-0.5,
            softcap=_cap(values, "attn_logit_softcapping", _SCORE_CAP if second else None),
            feed_forward=values.choice(
                "hidden_activation", "gelu_pytorch_tanh", GATED_FEED_FORWARDS
            ),  # type: ignore[arg-type]
            bias=False,
            qkv_bias=biased,
            output_bias=biased,
            dropout=0.0,
            attention_dropout=values.number("attention_dropout", 0.0),
            tied=values.flag("tie_word_embeddings", default=True),
            embedding_scale=d_model**0.5,
            logit_softcap=_cap(values, "final_logit_softcapping", _LOGIT_CAP if second else None),
        )

    def sources(self, config: LanguageModelConfig, names: Iterable[str]) -> dict[str, TensorSource]:
        # The norms of Gemma multiply by 1 + weight, ours by the weight.
        return {
            name: TensorSource(source.names, _one_more)
            if "norm" in name or "after" in name
            else source
            for name, source in super().sources(config, names).items()
        }


def _one_more(weight: Tensor) -> Tensor:
    # A half-precision sum would lose digits of small weights.
    return weight.double() + 1.0


def _cap(values: ConfigValues, name: str, default: float | None) -> float | None:
    """Return a softcap; null means that there is none."""
    if values.get(name) is None:
        return None if name in values else default
    return values.number(name, 0.0)
