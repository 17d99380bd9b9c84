"""Models: complete transformers, each built from a config."""

from glasshead.models.classifier import Classifier, ClassifierConfig
from glasshead.models.config import LocalLayers
from glasshead.models.encoder import Encoder, EncoderConfig, MaskedLanguageModel
from glasshead.models.language_model import LanguageModel, LanguageModelConfig
from glasshead.models.translator import Translator, TranslatorConfig
