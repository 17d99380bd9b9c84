"""Translate: an encoder and a decoder, trained on texts and their translations."""

from glasshead.tasks.translate.alignment import (
    Alignment,
    CrossAttention,
    align,
    check_choice,
    cross_attention,
)
from glasshead.tasks.translate.evaluating import Evaluation, evaluate
from glasshead.tasks.translate.job import TRANSLATE
from glasshead.tasks.translate.presets import PRESETS
from glasshead.tasks.translate.settings import TranslateSettings
from glasshead.tasks.translate.text_translator import Candidate, TextTranslator, Translation
