"""Translate: an encoder and a decoder, trained on texts and their translations."""

from glasshead.tasks.translate.alignment import (
    Alignment,
    CrossAttention,
    align,
    check_choice,
    cross_attention,
)
from glasshead.tasks.translate.text_translator import (
    Candidate,
    Evaluation,
    TextTranslator,
    Translation,
    evaluate,
)
from glasshead.tasks.translate.train import PRESETS, TRANSLATE, TranslateSettings
