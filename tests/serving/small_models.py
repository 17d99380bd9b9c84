"""Small random models of several families, as folders that transformers and vLLM read."""

from pathlib import Path

import torch

_SIZES = {
    "vocab_size": 211,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "initializer_range": 0.1,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
# Of each family: its layers, and what its config has more.
WINDOW = 48
_FAMILIES = {
    "Llama": (2, {"tie_word_embeddings": False}),
    "Qwen3": (3, {"tie_word_embeddings": False}),
    "Mistral": (3, {"sliding_window": WINDOW}),
    "Gemma2": (
        4,
        {
            "sliding_window": WINDOW,
            "attn_logit_softcapping": 20.0,
            "query_pre_attn_scalar": 32,
            "final_logit_softcapping": 30.0,
        },
    ),
    "GptOss": (
        4,
        {
            "sliding_window": WINDOW,
            "intermediate_size": 64,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
        },
    ),
}


def small_model(folder: Path, family: str) -> Path:
    """Write a random model of a family, with a tokenizer of words, and return its folder."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    layers, more = _FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        **{**_SIZES, **more}, num_hidden_layers=layers
    )
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for name, parameter in model.named_parameters():
        if "sinks" in name:
            torch.nn.init.normal_(parameter)
    place = folder / family
    model.save_pretrained(place)
    words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(211)}, unk_token="w2"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="w0", eos_token="w1", pad_token="w0"
    ).save_pretrained(place)
    return place
