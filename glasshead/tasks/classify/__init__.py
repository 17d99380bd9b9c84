"""Classify: an encoder that tells which of several things a text is."""

from glasshead.tasks.classify.text_classifier import (
    Answer,
    Evaluation,
    Looked,
    TextClassifier,
    evaluate,
    looked_at,
)
from glasshead.tasks.classify.train import CLASSIFY, PRESETS, ClassifySettings
