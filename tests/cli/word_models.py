"""Small models of Hugging Face that read words, for the commands that look into such models."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

LAYERS, HEADS = 2, 3


@dataclass(frozen=True)
class WordModels:
    """A "llama" and a "bert" that nobody trained; what begins a text is 0, what ends it 1.

    Attributes:
        words: All that they know.
        context: How many tokens they read at most.
        encoder: The class of the "bert".
    """

    words: Iterable[str]
    context: int
    encoder: str = "BertModel"

    @property
    def sizes(self) -> dict[str, Any]:
        """What their configs share."""
        return {
            "hidden_size": 24,
            "intermediate_size": 37,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "max_position_embeddings": self.context,
            # Weights that leave attention neither flat nor sharp.
            "initializer_range": 0.4,
        }

    def tokenizer(self, kind: str) -> Any:
        """A word a token; around a text stands what its kind puts there."""
        from tokenizers import Tokenizer, models, pre_tokenizers, processors

        llama = kind == "llama"
        begin, end, unknown = ("<s>", "</s>", "<unk>") if llama else ("[CLS]", "[SEP]", "[UNK]")
        known = [begin, end, unknown, *sorted(set(self.words))]
        vocabulary = {word: number for number, word in enumerate(known)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A" if llama else f"{begin} $A {end}",
            special_tokens=[(token, vocabulary[token]) for token in (begin, end)],
        )
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            unk_token=unknown,
            bos_token=begin,
            **{"eos_token" if llama else "sep_token": end},
        )

    def save(self, kind: str, folder: Path, **changes: Any) -> None:
        """A model and its tokenizer in a folder; the same numbers each time."""
        tokenizer = self.tokenizer(kind)
        torch.manual_seed(5)
        size = {"vocab_size": len(tokenizer), **self.sizes, **changes}
        if kind == "llama":
            config = transformers.LlamaConfig(num_key_value_heads=1, **size)
            model = transformers.LlamaForCausalLM(config)
        else:
            model = getattr(transformers, self.encoder)(transformers.BertConfig(**size))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
