"""Translate: an encoder and a decoder, trained on texts and their translations."""

from glasshead.tasks.translate.text_translator import (
    Alignment,
    Candidate,
    CrossAttention,
    TextTranslator,
    Translation,
    TranslationEvaluation,
    align,
    check_choice,
    cross_attention,
    evaluate,
)
from glasshead.tasks.translate.train import PRESETS, TRANSLATE, TranslateSettings
