"""Classify: an encoder that tells which of several things a text is."""

from glasshead.tasks.classify.text_classifier import (
    Classification,
    LabelEvaluation,
    TextClassifier,
    TokenAttention,
    evaluate,
    token_attention,
)
from glasshead.tasks.classify.train import CLASSIFY, PRESETS, ClassifySettings
