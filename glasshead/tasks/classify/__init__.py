"""Text classification: an encoder that predicts the label of a text."""

from glasshead.tasks.classify.text_classifier import (
    Classification,
    LabelEvaluation,
    TextClassifier,
    TokenAttention,
    evaluate,
    token_attention,
)
from glasshead.tasks.classify.train import CLASSIFY, PRESETS, ClassifySettings
