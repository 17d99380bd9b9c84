"""BERT, RoBERTa, DistilBERT and ModernBERT: convert their configs and tensors to ours."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from glasshead.models.encoder import EncoderConfig
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
)
from glasshead.models.pretrained.rope import local_base, rotary, sliding_layers, windows


class EncoderFamily(ABC):
    """The conversion of a family of encoders, each alone or with the head of a language model.

    Attributes:
        unused: Patterns of stored tensors that are not used.
        heads: Patterns of the tensors of heads, which the encoder alone does not use.
        output: Name of the output matrix, which is stored beside a tied one, too.
        bias: Name of the output's bias.
        other_bias: Another name of the bias, in newer files of an untied output the only one.
    """

    unused: ClassVar[tuple[str, ...]] = ()
    heads: ClassVar[tuple[str, ...]]
    output: ClassVar[str]
    bias: ClassVar[str]
    other_bias: ClassVar[str | None] = None

    @abstractmethod
    def config(self, values: ConfigValues) -> EncoderConfig:
        """Convert the config.

        Errors: a ValueError for an unsupported value.
        """

    @abstractmethod
    def encoder(self, config: EncoderConfig, names: set[str]) -> dict[str, TensorSource]:
        """Return the source of each tensor of the encoder; `names` are the stored ones."""

    @abstractmethod
    def head(self, names: set[str]) -> dict[str, str]:
        """Return the stored name of each tensor of the head but for its output."""

    def sources_of_encoder(
        self, config: EncoderConfig, names: Iterable[str]
    ) -> dict[str, TensorSource]:
        """Return the source of each tensor of the encoder alone."""
        return self.encoder(config, set(names))

    def sources(self, config: EncoderConfig, names: Iterable[str]) -> dict[str, TensorSource]:
        """Return the source of each tensor of the model with its head."""
        names = set(names)
        found = {f"encoder.{name}": one for name, one in self.encoder(config, names).items()}
        found |= {name: same(stored) for name, stored in self.head(names).items()}
        bias = self.bias
        if not config.tied:
            found["output.weight"] = same(self.output)
            if self.other_bias in names:
                bias = self.other_bias
        return found | {"bias": same(bias)}

    def ignored_by_encoder(self, config: EncoderConfig) -> tuple[str, ...]:
        """Return patterns of stored tensors that the encoder alone does not use."""
        del config
        return (*self.unused, *self.heads)

    def ignored(self, config: EncoderConfig) -> tuple[str, ...]:
        """Return patterns of stored tensors that the model with its head does not use."""
        if self.other_bias is None:
            return (*self.unused, self.output) if config.tied else self.unused
        if config.tied:
            return (*self.unused, self.output, self.other_bias)
        return (*self.unused, self.bias)


class BERT(EncoderFamily):
    """BERT.

    Source: Devlin et al. 2019 (BERT), section 3.
    """

    # The pooler, which no attention reads, and position ids, which old files store.
    unused = ("*embeddings.position_ids", "*pooler.*", "cls.seq_relationship.*")
    heads = ("cls.*",)
    output, bias = "cls.predictions.decoder.weight", "cls.predictions.bias"
    other_bias = "cls.predictions.decoder.bias"
    prefix = "bert."

    def config(self, values: ConfigValues) -> EncoderConfig:
        values.only("position_embedding_type", "absolute")
        values.only("is_decoder", False)
        return EncoderConfig(
            **values.sizes(),
            context_length=values.whole("max_position_embeddings", 512),
            order="post",
            feed_forward=values.choice("hidden_act", "gelu", FEED_FORWARDS),  # type: ignore[arg-type]
            norm_eps=values.number("layer_norm_eps", 1e-12),
            dropout=values.number("hidden_dropout_prob", 0.1),
            attention_dropout=values.number("attention_probs_dropout_prob", 0.1),
            embedding_norm=True,
            segments=values.whole("type_vocab_size", 2),
            tied=values.flag("tie_word_embeddings", default=True),
        )

    def encoder(self, config: EncoderConfig, names: set[str]) -> dict[str, TensorSource]:
        at = prefix(names, self.prefix)
        # Names of the first files, converted from TensorFlow.
        old = f"{at}embeddings.LayerNorm.gamma" in names
        norms = {"weight": "gamma", "bias": "beta"} if old else {"weight": "weight", "bias": "bias"}
        found = {
            "embedding.tokens.weight": same(f"{at}embeddings.word_embeddings.weight"),
            "embedding.positions.table.weight": same(f"{at}embeddings.position_embeddings.weight"),
            "embedding.segments.weight": same(f"{at}embeddings.token_type_embeddings.weight"),
        }
        for part, theirs in norms.items():
            found[f"embedding.norm.{part}"] = same(f"{at}embeddings.LayerNorm.{theirs}")
        return found | of_blocks(
            config.num_layers,
            f"{at}encoder.layer",
            [
                (
                    "attention.projections.stacks.0",
                    [f"attention.self.{one}" for one in ("query", "key", "value")],
                    BOTH,
                ),
                ("attention.output", ["attention.output.dense"], BOTH),
                ("feed_forward.hidden", ["intermediate.dense"], BOTH),
                ("feed_forward.output", ["output.dense"], BOTH),
                ("around_attention.norm", ["attention.output.LayerNorm"], norms),
                ("around_feed_forward.norm", ["output.LayerNorm"], norms),
            ],
        )

    def head(self, names: set[str]) -> dict[str, str]:
        at = "cls.predictions.transform"
        old = f"{at}.LayerNorm.gamma" in names
        return {
            "hidden.weight": f"{at}.dense.weight",
            "hidden.bias": f"{at}.dense.bias",
            "norm.weight": f"{at}.LayerNorm.{'gamma' if old else 'weight'}",
            "norm.bias": f"{at}.LayerNorm.{'beta' if old else 'bias'}",
        }


class RoBERTa(BERT):
    """RoBERTa.

    Source: Liu et al. 2019 (RoBERTa), section 3.
    """

    heads = ("lm_head.*",)
    output, bias = "lm_head.decoder.weight", "lm_head.bias"
    other_bias = "lm_head.decoder.bias"
    prefix = "roberta."
    # Rows of the table of positions that no token uses: those up to that of the padding token.
    _padding, _unused_positions = 1, 2

    def config(self, values: ConfigValues) -> EncoderConfig:
        values.only("pad_token_id", self._padding)
        # The head of the masked language model has no other activation.
        values.only("hidden_act", "gelu")
        found = super().config(values)
        if found.context_length <= self._unused_positions:
            raise ValueError(
                f"max_position_embeddings in {values.where} must be above "
                f"{self._unused_positions}, got {found.context_length}. Use the config.json that "
                "belongs to the weights."
            )
        return replace(found, context_length=found.context_length - self._unused_positions)

    def encoder(self, config: EncoderConfig, names: set[str]) -> dict[str, TensorSource]:
        found = super().encoder(config, names)
        table = "embedding.positions.table.weight"
        return found | {table: below(found[table].names[0], self._unused_positions)}

    def head(self, names: set[str]) -> dict[str, str]:
        found = {"hidden": "lm_head.dense", "norm": "lm_head.layer_norm"}
        return {f"{a}.{part}": f"{b}.{part}" for a, b in found.items() for part in BOTH}


class DistilBERT(EncoderFamily):
    """DistilBERT.

    Source: Sanh et al. 2019 (DistilBERT), section 3.
    """

    unused = ("*embeddings.position_ids",)
    heads = ("vocab_*",)
    output, bias = "vocab_projector.weight", "vocab_projector.bias"

    def config(self, values: ConfigValues) -> EncoderConfig:
        return EncoderConfig(
            vocab_size=values.whole("vocab_size"),
            context_length=values.whole("max_position_embeddings", 512),
            d_model=values.whole("dim"),
            num_heads=values.whole("n_heads"),
            num_layers=values.whole("n_layers"),
            d_hidden=values.whole("hidden_dim"),
            order="post",
            feed_forward=values.choice("activation", "gelu", FEED_FORWARDS),  # type: ignore[arg-type]
            norm_eps=1e-12,
            dropout=values.number("dropout", 0.1),
            attention_dropout=values.number("attention_dropout", 0.1),
            embedding_norm=True,
            tied=values.flag("tie_word_embeddings", default=True),
        )

    def encoder(self, config: EncoderConfig, names: set[str]) -> dict[str, TensorSource]:
        at = prefix(names, "distilbert.")
        found = {
            "embedding.tokens.weight": same(f"{at}embeddings.word_embeddings.weight"),
            "embedding.positions.table.weight": same(f"{at}embeddings.position_embeddings.weight"),
        }
        for part in BOTH:
            found[f"embedding.norm.{part}"] = same(f"{at}embeddings.LayerNorm.{part}")
        return found | of_blocks(
            config.num_layers,
            f"{at}transformer.layer",
            [
                ("attention.projections.stacks.0", [f"attention.{x}_lin" for x in "qkv"], BOTH),
                ("attention.output", ["attention.out_lin"], BOTH),
                ("feed_forward.hidden", ["ffn.lin1"], BOTH),
                ("feed_forward.output", ["ffn.lin2"], BOTH),
                ("around_attention.norm", ["sa_layer_norm"], BOTH),
                ("around_feed_forward.norm", ["output_layer_norm"], BOTH),
            ],
        )

    def head(self, names: set[str]) -> dict[str, str]:
        found = {"hidden": "vocab_transform", "norm": "vocab_layer_norm"}
        return {f"{a}.{part}": f"{b}.{part}" for a, b in found.items() for part in BOTH}


class ModernBERT(EncoderFamily):
    """ModernBERT.

    Source: Warner et al. 2024 (Smarter, better, faster, longer), section 2.1.
    """

    heads = ("head.*", "decoder.*")
    output, bias = "decoder.weight", "decoder.bias"

    def config(self, values: ConfigValues) -> EncoderConfig:
        for name in ("norm_bias", "mlp_bias", "classifier_bias"):
            values.only(name, False)
        values.only("decoder_bias", True)
        values.only("classifier_activation", values.get("hidden_activation", "gelu"))
        context = values.whole("max_position_embeddings", 8192)
        biased = values.flag("attention_bias", default=False)
        every = values.whole("global_attn_every_n_layers", 3)
        usual = [bool(layer % every) for layer in range(values.whole("num_hidden_layers"))]
        base = values.number("global_rope_theta", 160_000.0)
        near_base = local_base(values, "local_rope_theta", 10_000.0)
        return EncoderConfig(
            **values.sizes(),
            context_length=context,
            positions="rotary",
            **rotary(values, context=context, base=base),
            **windows(
                sliding_layers(values, usual), values.whole("local_attention", 128) // 2, near_base
            ),
            feed_forward=values.choice("hidden_activation", "gelu", GATED_FEED_FORWARDS),  # type: ignore[arg-type]
            bias=False,
            qkv_bias=biased,
            output_bias=biased,
            norm_eps=values.number("norm_eps", 1e-5),
            dropout=values.number("mlp_dropout", 0.0),
            attention_dropout=values.number("attention_dropout", 0.0),
            embedding_norm=True,
            first_norm=False,
            tied=values.flag("tie_word_embeddings", default=True),
        )

    def encoder(self, config: EncoderConfig, names: set[str]) -> dict[str, TensorSource]:
        at = prefix(names, "model.")
        found = {
            "embedding.tokens.weight": same(f"{at}embeddings.tok_embeddings.weight"),
            "embedding.norm.weight": same(f"{at}embeddings.norm.weight"),
            "norm.weight": same(f"{at}final_norm.weight"),
        }
        biased = BOTH if config.qkv_bias else WEIGHT
        found |= of_blocks(
            config.num_layers,
            f"{at}layers",
            [
                ("attention.projections.stacks.0", ["attn.Wqkv"], biased),
                ("attention.output", ["attn.Wo"], biased),
                ("feed_forward.hidden.stacks.0", ["mlp.Wi"], WEIGHT),
                ("feed_forward.output", ["mlp.Wo"], WEIGHT),
                ("around_attention.norm", ["attn_norm"], WEIGHT),
                ("around_feed_forward.norm", ["mlp_norm"], WEIGHT),
            ],
        )
        # The first attention reads the normalized embeddings as they are.
        del found["blocks.0.around_attention.norm.weight"]
        return found

    def head(self, names: set[str]) -> dict[str, str]:
        return {"hidden.weight": "head.dense.weight", "norm.weight": "head.norm.weight"}
