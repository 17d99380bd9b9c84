"""Pretrained: models that people have, as ours."""

from glasshead.models.pretrained.llama2c import is_llama2c, load_llama2c
from glasshead.models.pretrained.loading import FAMILIES, load_pretrained
