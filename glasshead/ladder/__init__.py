"""The ladder: attention in ten rungs, each one idea more than the last, each one file.

Names are fetched when they are used, so that the worked example can be read without torch.
"""

from importlib import import_module

_HOMES = {
    "HELLO_SHINY_SUN": "worked_example",
    "WorkedExample": "worked_example",
    "simple_self_attention": "rung1_simple_self_attention",
    "SelfAttentionV1": "rung2_self_attention_v1",
    "SelfAttentionV2": "rung3_self_attention_v2",
    "ScaledDotProductAttention": "rung3_self_attention_v2",
    "CausalAttention": "rung4_causal_attention",
    "MultiHeadAttentionWrapper": "rung5_multi_head_attention_wrapper",
    "MultiHeadAttention": "rung6_multi_head_attention",
    "EncoderMultiHeadAttention": "rung7_encoder_multi_head_attention",
    "Answer": "rung8_key_value_store",
    "KeyValueStore": "rung8_key_value_store",
    "hard_attention": "rung8_key_value_store",
    "soft_attention": "rung8_key_value_store",
    "CNN": "rung9_encoder_layer",
    "EncoderLayer": "rung9_encoder_layer",
    "Embeddings": "rung9_encoder",
    "Encoder": "rung9_encoder",
    "create_sinusoidal_embeddings": "rung9_encoder",
    "TransformerClassifier": "rung9_transformer_classifier",
    "AttentionContext": "rung10_why_attention",
    "FixedContext": "rung10_why_attention",
    "SequenceToSequence": "rung10_why_attention",
    "sentences_to_reverse": "rung10_why_attention",
}

__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll] - the stub has the names


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
