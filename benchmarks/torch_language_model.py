"""The same language model from PyTorch's own layers, and a plain loop that trains it.

    .venv/bin/python benchmarks/torch_language_model.py FILE

trains it on a text by character, in the setting of `--preset nano`, and prints the seconds and the
validation loss. It is what `benchmarks/training.py` holds `glasshead train write` against.
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.tasks.train_writer import PRESETS


class TorchLanguageModel(nn.Module):
    """`LanguageModel` with learned positions and pre-norm, of `nn.TransformerEncoderLayer`."""

    def __init__(self, config: gh.LanguageModelConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.context_length, config.d_model)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.d_model,
                config.num_heads,
                config.hidden,
                dropout=config.dropout,
                activation="gelu",
                batch_first=True,
                norm_first=True,
                bias=config.bias,
            )
            for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.d_model, bias=config.bias)
        mask = nn.Transformer.generate_square_subsequent_mask(config.context_length)
        self.register_buffer("mask", mask)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of the token after each."""
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.positions(torch.arange(length))
        mask = cast("Tensor", self.mask)[:length, :length]
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return F.linear(self.norm(x), self.tokens.weight)

    @classmethod
    def like(cls, model: gh.LanguageModel) -> "TorchLanguageModel":
        """The same model, with the same weights."""
        theirs = cls(model.config)
        theirs.tokens.load_state_dict(model.embedding.tokens.state_dict())
        theirs.positions.load_state_dict(
            cast("gh.Learned", model.embedding.positions).table.state_dict()
        )
        theirs.norm.load_state_dict(model.norm.state_dict())
        for layer, block in zip(theirs.layers, model.blocks, strict=True):
            _copy(cast("nn.TransformerEncoderLayer", layer), cast("gh.EncoderBlock", block))
        return theirs


def _copy(layer: nn.TransformerEncoderLayer, block: gh.EncoderBlock) -> None:
    ours, theirs = block.state_dict(), layer.state_dict()
    names = {
        "self_attn.in_proj_": "attention.projections.stacks.0.",
        "self_attn.out_proj.": "attention.output.",
        "linear1.": "feed_forward.hidden.",
        "linear2.": "feed_forward.output.",
        "norm1.": "around_attention.norm.",
        "norm2.": "around_feed_forward.norm.",
    }
    for name in theirs:
        start = next(start for start in names if name.startswith(start))
        theirs[name] = ours[names[start] + name.removeprefix(start)]
    layer.load_state_dict(theirs)


def optimizer_of(model: nn.Module, training: dict) -> torch.optim.AdamW:
    """AdamW that decays matrices alone."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=training["learning_rate"], betas=training["betas"], fused=True
    )


def train(file: Path) -> dict[str, float]:
    """Train by the plain loop; seconds without imports, and the loss on the last tenth."""
    setting = PRESETS["nano"]
    training, size = setting.training, setting.data["batch_size"]
    start = time.perf_counter()
    text = file.read_text(encoding="utf-8")
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    tokens = torch.tensor([letters[letter] for letter in text])
    cut = int(0.9 * len(tokens))
    config = gh.LanguageModelConfig(vocab_size=len(letters), **setting.model)
    torch.manual_seed(0)
    model = TorchLanguageModel.like(gh.LanguageModel(config))
    optimizer = optimizer_of(model, training)
    within = torch.arange(config.context_length)
    loss = math.nan
    for step in range(training["steps"]):
        places = torch.randint(cut - config.context_length - 1, (size, 1)) + within
        for group in optimizer.param_groups:
            group["lr"] = rate(step, training)
        logits = model(tokens[places])
        F.cross_entropy(logits.flatten(0, 1), tokens[places + 1].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % training["validate_every"] == 0:
            loss = validation(model, tokens[cut:], config.context_length)
    return {"seconds": time.perf_counter() - start, "loss": loss}


def rate(step: int, training: dict) -> float:
    """The learning rate: a warm-up, then a cosine."""
    high, low, warmup = (
        training[name] for name in ("learning_rate", "minimum_learning_rate", "warmup")
    )
    if step < warmup:
        return high * (step + 1) / warmup
    share = (step - warmup) / (training["steps"] - warmup)
    return low + (high - low) * 0.5 * (1 + math.cos(math.pi * share))


@torch.no_grad()
def validation(model: nn.Module, tokens: Tensor, length: int) -> float:
    """The mean loss over a text, in pieces."""
    model.eval()
    pieces = (len(tokens) - 1) // length
    inputs = tokens[: pieces * length].view(pieces, length).split(128)
    targets = tokens[1 : pieces * length + 1].view(pieces, length).split(128)
    total = sum(
        float(F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum"))
        for x, y in zip(inputs, targets, strict=True)
    )
    model.train()
    return total / (pieces * length)


if __name__ == "__main__":
    print(json.dumps(train(Path(sys.argv[1]))))
