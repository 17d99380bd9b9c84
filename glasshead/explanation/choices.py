"""Choices: scores and normalizers by the names used in options and URLs.

Nothing is imported here, so that a name can be checked without torch.
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
