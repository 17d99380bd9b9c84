"""Write: a language model, trained on the user's text or on little stories."""

from glasshead.tasks.write.train import PRESETS, WRITE, WriteSettings
from glasshead.tasks.write.writer import Writer, evaluate
