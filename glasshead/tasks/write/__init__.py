"""Language modelling: a decoder trained on the user's texts or on generated stories."""

from glasshead.tasks.write.train import PRESETS, WRITE, WriteSettings
from glasshead.tasks.write.writer import Writer, evaluate
