"""What is said of masks with faults in them."""

import torch

import glasshead as gh

CAUSAL = torch.ones(7, 7, dtype=torch.bool).tril()


def found(mask, kind, **stated):
    """The one finding of a kind."""
    diagnosis = gh.diagnose(mask, **stated)
    (finding,) = [finding for finding in diagnosis.findings if finding.kind == kind]
    assert diagnosis.healthy == all(one.severity == "note" for one in diagnosis.findings)
    return finding


def kinds(mask, **stated):
    """Those of all findings."""
    return {finding.kind for finding in gh.diagnose(mask, **stated).findings}


def additive(shown, low=-torch.inf, dtype=torch.float32):
    """The mask that is added to the scores."""
    return torch.zeros(shown.shape, dtype=dtype).masked_fill(~shown, low)
