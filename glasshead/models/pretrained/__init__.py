"""Pretrained models: load published weights into our own models."""

from glasshead.models.pretrained.llama2c import is_llama2c, llama2c_file, load_llama2c
from glasshead.models.pretrained.loading import FAMILIES, load_pretrained
