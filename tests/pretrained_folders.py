"""Small models of others: a file of llama2.c with its tokenizer, folders of Hugging Face."""

import json
import struct
from pathlib import Path

import torch
from tokenizers import Tokenizer as Inner
from tokenizers import processors

from glasshead.tasks.tokenizers.pretrained import llama2c_tokenizer

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# Pieces that overlap, the highest score first.
PIECES = ["ab", " a", "bc", "abc", "aa", "ca", "é", "bab", " ab", "aab", "c b", *"abc é☀"]
WORD_PIECES = "once upon a time tom saw big red ball and the dog ran un ##der ##s , ."
TOKENS = [
    ("<unk>", 0.0),
    ("\n<s>\n", 0.0),
    ("\n</s>\n", 0.0),
    *((name, 0.0) for name in BYTES),
    *((piece, -float(rank)) for rank, piece in enumerate(dict.fromkeys(PIECES))),
]


def packed(tokens=TOKENS) -> bytes:
    """Tokens as llama2.c has them."""
    content = struct.pack("<i", max(len(text.encode()) for text, _ in tokens))
    for text, score in tokens:
        content += struct.pack("<fi", score, len(text.encode())) + text.encode()
    return content


def llama2c_files(folder: Path) -> Path:
    """A model that nobody trained, and its tokenizer beside it."""
    width, hidden, layers, heads, kv_heads, length = 12, 20, 2, 3, 1, 31
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tok.bin").write_bytes(packed())
    head = (width, hidden, layers, heads, kv_heads, len(TOKENS), length)
    of_layer = 2 * width + 2 * width * width + 2 * width * width // heads + 3 * width * hidden
    count = len(TOKENS) * width + layers * of_layer + width + length * (width // heads)
    weights = torch.randn(count, generator=torch.Generator().manual_seed(7)) / 2
    file = folder / "model.bin"
    file.write_bytes(struct.pack("<7i", *head) + weights.numpy().tobytes())
    return file


def tokenizer_files(folder: Path, *, start: bool = True, **named) -> None:
    """A tokenizer.json with the tokens above, and what tokenizer_config.json tells."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tok.bin").write_bytes(packed())
    inner = Inner.from_str(llama2c_tokenizer(folder / "tok.bin").inner.to_str())
    (folder / "tok.bin").unlink()
    if start:
        inner.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    inner.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))


def llama_folder(folder: Path, **config) -> Path:
    """A Llama that nobody trained, sharper than at the beginning, with its tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    small = {
        "vocab_size": len(TOKENS) + 3,
        "hidden_size": 24,
        "intermediate_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "max_position_embeddings": 67,
        "eos_token_id": [2, 262],
    }
    model = LlamaForCausalLM(LlamaConfig(**{**small, **config}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    model.save_pretrained(folder)
    tokenizer_files(folder, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    return folder


def bert_folder(folder: Path, kind: str = "BertModel", **config) -> Path:
    """A BERT or ALBERT that nobody trained, sharper than at first, with pieces of words."""
    import transformers
    from transformers import BertTokenizerFast

    torch.manual_seed(7)
    folder.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORD_PIECES.split()]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    small = {
        "vocab_size": len(words),
        "hidden_size": 24,
        "intermediate_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "max_position_embeddings": 67,
    }
    build = getattr(transformers, kind)
    model = build(build.config_class(**{**small, **config}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "query" in name or "key" in name:
                parameter.mul_(9)
    model.save_pretrained(folder)
    return folder
