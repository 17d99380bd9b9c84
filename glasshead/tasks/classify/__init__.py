"""Classify: an encoder that tells which of several things a text is."""

from glasshead.tasks.classify.evaluating import Evaluation, evaluate
from glasshead.tasks.classify.job import CLASSIFY
from glasshead.tasks.classify.looking import Looked, looked_at
from glasshead.tasks.classify.presets import PRESETS
from glasshead.tasks.classify.settings import ClassifySettings
from glasshead.tasks.classify.text_classifier import Answer, TextClassifier
