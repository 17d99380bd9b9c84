"""Positions: what tells a model where a token stands. ALiBi is a bias, `glasshead.ALiBi`."""

from glasshead.layers.positions.learned import Learned
from glasshead.layers.positions.rotary import Rotary
from glasshead.layers.positions.sinusoidal import Sinusoidal
