"""Small models of transformers whose classes compute their attention by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import watched_models as models

VOCABULARY = 53
# Some models of transformers 4 fill a mask of float32 with the lowest number of another type.
PRECISE = torch.float64 if models.TRANSFORMERS.major > 4 else torch.float32
BATCH, LENGTH = 2, 7


@dataclass(frozen=True)
class Family:
    """A model that writes its attention by hand, and what it is given.

    Attributes:
        name: The beginning of the names of its classes.
        sizes: The settings of its config.
        kind: The end of the name of its class.
        attentions: The name of the attention of each layer; None: it returns no weights. A model of
            images returns those of the last of two blocks, then of the first.
        pads: Whether it takes a mask of padding.
        image: The width of the images that it reads, in place of texts.
        dtype: The most precise that it runs in.
        changed: What it is given besides.
    """

    name: str
    sizes: dict[str, Any]
    kind: str = "Model"
    attentions: str | None = "encoder.layer.{}.attention.self"
    pads: bool = True
    image: int | None = None
    dtype: torch.dtype = torch.float64
    changed: dict[str, Any] = field(default_factory=dict)

    def model(self) -> nn.Module:
        """The model, with weights that attend sharply."""
        import transformers

        torch.manual_seed(5)
        config = getattr(transformers, f"{self.name}Config")(**self.sizes)
        model = getattr(transformers, f"{self.name}{self.kind}")(config).to(self.dtype).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0, 0.4)
        return model

    def inputs(self) -> dict[str, Any]:
        """A batch of two images, or of two texts, the second of which is padded."""
        torch.manual_seed(3)
        if self.image:
            size = BATCH, 3, self.image, self.image
            return {"pixel_values": torch.randn(size, dtype=torch.float64)} | self.changed
        tokens = torch.randint(3, VOCABULARY, (BATCH, LENGTH))
        if not self.pads:
            return {"input_ids": tokens} | self.changed
        mask = torch.ones_like(tokens)
        mask[1, 4:] = 0
        return {"input_ids": tokens, "attention_mask": mask} | self.changed


def _bert(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 15,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 17,
        "max_position_embeddings": 32,
    } | changes


def _gpt(**changes: Any) -> dict[str, Any]:
    own = {"vocab_size": VOCABULARY, "n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 32}
    return own | {"bos_token_id": 1, "eos_token_id": 2} | changes


_SWIN = {"image_size": 16, "patch_size": 2, "embed_dim": 6, "depths": [2, 1], "num_heads": [3, 3]}
_SWIN |= {"window_size": 4}
_DECODER: Callable[[str], str] = "transformer.h.{{}}.{}".format
WRITERS = {
    "bloom": Family(
        "Bloom",
        {"vocab_size": VOCABULARY, "hidden_size": 15, "n_layer": 2, "n_head": 3},
        "ForCausalLM",
        _DECODER("self_attention"),
        # Of softmaxes in float32 the lowest number of float64 makes NaN.
        dtype=torch.float32,
    ),
    "mpt": Family(
        "Mpt",
        {"vocab_size": VOCABULARY, "d_model": 16, "n_heads": 4, "n_layers": 2, "max_seq_len": 32},
        "ForCausalLM",
        "transformer.blocks.{}.attn",
        dtype=PRECISE,
    ),
    "gptj": Family("GPTJ", _gpt(rotary_dim=4), "ForCausalLM", _DECODER("attn")),
    "codegen": Family(
        "CodeGen", _gpt(n_embd=32, n_head=4, rotary_dim=4), "ForCausalLM", _DECODER("attn")
    ),
    "gpt_neo": Family(
        "GPTNeo",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 15,
            "num_layers": 2,
            "num_heads": 3,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 3,
            "max_position_embeddings": 32,
            "intermediate_size": 17,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        "ForCausalLM",
        _DECODER("attn.attention"),
    ),
}
ENCODERS = {
    "xlnet": Family(
        "XLNet",
        {"vocab_size": VOCABULARY, "d_model": 18, "n_head": 3, "n_layer": 2, "d_inner": 17},
        attentions="layer.{}.rel_attn",
    ),
    "deberta": Family("Deberta", _bert(relative_attention=True, pos_att_type=["p2c", "c2p"])),
    "deberta_v2": Family("DebertaV2", _bert(relative_attention=True, pos_att_type=["p2c", "c2p"])),
    "mpnet": Family("MPNet", _bert(), attentions="encoder.layer.{}.attention.attn"),
    "tapas": Family("Tapas", _bert()),
    "ibert": Family("IBert", _bert()),
    "luke": Family("Luke", _bert(entity_vocab_size=11, entity_emb_size=7)),
    "big_bird": Family("BigBird", _bert(attention_type="original_full")),
    "xlm": Family(
        "XLM",
        {"vocab_size": VOCABULARY, "emb_dim": 15, "n_layers": 2, "n_heads": 3},
        attentions="attentions.{}",
    ),
    "openai": Family("OpenAIGPT", _gpt(), attentions="h.{}.attn"),
    "perceiver": Family(
        "Perceiver",
        {
            "num_latents": 5,
            "d_latents": 12,
            "d_model": 11,
            "num_blocks": 1,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 3,
            "num_cross_attention_heads": 1,
            "qk_channels": 12,
            "v_channels": 12,
        },
        attentions="encoder.self_attends.{}.attention.self",
        pads=False,
        changed={"inputs": torch.randn(BATCH, 13, 11, dtype=torch.float64), "input_ids": None},
    ),
}
IMAGES = {
    "swinv2": Family(
        "Swinv2",
        _SWIN,
        attentions="encoder.layers.{}.blocks.{}.attention.self",
        image=16,
    ),
    "donut_swin": Family(
        "DonutSwin",
        _SWIN,
        attentions="encoder.layers.{}.blocks.{}.attention.self",
        image=16,
    ),
    "levit": Family(
        "Levit",
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "num_attention_heads": [2, 3, 4],
            "depths": [2, 2, 2],
            "key_dim": [4, 4, 4],
            "attention_ratio": [2, 2, 2],
        },
        attentions=None,
        image=64,
    ),
}
FAMILIES = WRITERS | ENCODERS | IMAGES
