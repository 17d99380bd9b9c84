"""Positions: what tells a model where a token stands. ALiBi is a bias, `glasshead.ALiBi`."""

from glasshead.layers.positions.learned import Learned
from glasshead.layers.positions.rotary import Rotary
from glasshead.layers.positions.rotary_scaling import (
    LinearScaling,
    Llama3Scaling,
    RotaryScaling,
    YarnScaling,
    scaling_of,
)
from glasshead.layers.positions.sinusoidal import Sinusoidal
