"""glasshead: attention you can see through."""

import importlib
from typing import Any

_HOMES = {
    "glasshead.attention": ("Attention", "JoinedWeights", "Observation", "Plan", "Weights"),
    "glasshead.diagnosis": ("Diagnosis", "diagnose"),
    "glasshead.explanation": ("Explanation", "explain"),
    "glasshead.layers": (
        "DecoderBlock",
        "EncoderBlock",
        "FeedForward",
        "GatedFeedForward",
        "H2O",
        "KVCache",
        "KeyValueCache",
        "Learned",
        "MultiHeadAttention",
        "PostNorm",
        "PreNorm",
        "Rotary",
        "Sinks",
        "Sinusoidal",
        "SnapKV",
        "TOVA",
    ),
    "glasshead.models": (
        "Classifier",
        "ClassifierConfig",
        "Encoder",
        "EncoderConfig",
        "LanguageModel",
        "LanguageModelConfig",
        "MaskedLanguageModel",
        "Translator",
        "TranslatorConfig",
    ),
    "glasshead.models.decoding": ("Beam", "Greedy", "Sampling", "generate", "stream"),
    "glasshead.models.pretrained": ("load_pretrained",),
    "glasshead.recipe.biases": ("ALiBi", "Bias", "RelativeBias"),
    "glasshead.recipe.masks": (
        "Mask",
        "causal",
        "dense",
        "documents",
        "from_additive",
        "from_huggingface",
        "from_torch_mha",
        "padding",
        "prefix",
        "window",
    ),
    "glasshead.recipe.normalizers": (
        "Entmax15",
        "HardMax",
        "Normalizer",
        "Sigmoid",
        "Softmax",
        "SoftmaxOne",
        "Sparsemax",
    ),
    "glasshead.recipe.scores": (
        "Additive",
        "Cosine",
        "Dot",
        "Gaussian",
        "InnerProduct",
        "ScaledDot",
        "Score",
    ),
    "glasshead.recipe.tile": ("Tile",),
    "glasshead.recipe.problem": ("Trace",),
    "glasshead.statistics": (
        "ArgMax",
        "DistanceHistogram",
        "Entropy",
        "LogSumExp",
        "MassOn",
        "MaxScore",
        "MaxWeight",
        "MeanDistance",
        "PooledMap",
        "Received",
        "Statistic",
        "TopK",
    ),
    "glasshead.studio.report": ("Report",),
    "glasshead.tasks.readers.find_roles": ("find_roles",),
    "glasshead.tasks.readers.observe_texts": ("observe_texts",),
    "glasshead.tasks.write": ("Writer",),
    "glasshead.watching": ("Seen", "ablate", "watch"),
    "glasshead.watching.alarms": ("Alarm", "AlarmRule"),
    "glasshead.watching.analytics": (
        "HeadRoles",
        "Patterns",
        "eviction_scores",
        "flow",
        "head_roles",
        "patterns",
        "repeated_random_tokens",
        "rollout",
    ),
    "glasshead.watching.corpus": ("CorpusResult", "CorpusStatistics", "load"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'glasshead' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
