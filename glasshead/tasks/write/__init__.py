"""Write: a language model, trained on the user's text or on little stories."""

from glasshead.tasks.write.evaluating import evaluate
from glasshead.tasks.write.job import WRITE
from glasshead.tasks.write.presets import PRESETS
from glasshead.tasks.write.settings import WriteSettings
from glasshead.tasks.write.writer import Writer
