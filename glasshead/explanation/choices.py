"""Choices: the scores and normalizers, by the names that options and addresses give them.

Nothing is imported for them, so that a name is checked before torch is there.
"""

from types import MappingProxyType

SCORES = MappingProxyType(
    {
        "scaled-dot": "ScaledDot",
        "dot": "Dot",
        "cosine": "Cosine",
        "gaussian": "Gaussian",
        "additive": "Additive",
    }
)
NORMALIZERS = MappingProxyType(
    {
        "softmax": "Softmax",
        "softmax-one": "SoftmaxOne",
        "hardmax": "HardMax",
        "sparsemax": "Sparsemax",
        "entmax15": "Entmax15",
        "sigmoid": "Sigmoid",
    }
)
HARDENING = ("softmax", "hardmax", "sparsemax", "entmax15")
"""These give all weight to the largest score as β grows; the others do not."""
