"""Errors of a watch: their classes, and the reasons for which attention is not observed."""

import torch

from glasshead.recipe.validation import UnfitError


class UnseenError(RuntimeError):
    """Attention of a model ran, but was not seen, or not as it is; the message says why."""


class UnfollowedError(RuntimeError):
    """Attention written by hand that is not what its softmax says; the message is a clause."""


class BudgetError(UnfitError):
    """Kept weights that need more memory than `budget`."""


# The error that a watch raises into the model's run, as its arguments do not fit it. An
# `UnseenError` waits for the end of the block.
MEANT = UnfitError


# Reasons why an attention that ran was not observed.
UNDER_VMAP = (
    "watch cannot observe {module} under torch.vmap. Call the model on the batch itself, or "
    "exclude {module} with layers=."
)
NUMBERLESS = (
    "watch needs tensors with data, but {module} ran on tensors of the meta device or "
    "FakeTensorMode. Run the model on real tensors, or exclude {module} with layers=."
)
TRACED = (
    "watch cannot observe {module}, which ran only while torch.jit.trace recorded it. Also run "
    "the model itself inside the block, or exclude {module} with layers=."
)
COMPILED = (
    "In compiled code, watch observes only F.scaled_dot_product_attention, but {module} runs "
    "another attention. Watch the model uncompiled, or exclude {module} with layers=."
)
COMPILED_SOFTMAX = (
    "In compiled code, watch observes only F.scaled_dot_product_attention, but {module} computes "
    "its own softmax. Watch the model uncompiled, or exclude {module} with layers=."
)
SHARDED = (
    "watch needs projections that are sharded by heads, but the weights of {module} are sharded "
    "in another way. Shard them with ColwiseParallel and RowwiseParallel, or exclude {module} "
    "with layers=."
)
STANCE = (
    "watch must recompile {module}, but the stance of torch.compiler does not allow it. Use the "
    "default stance inside the block, or exclude {module} with layers=."
)
EXPLICIT = (
    "watch follows explicit attention from a product of queries and keys through a softmax to a "
    "product with values"
)
OF_A_PROJECTION = "takes the softmax of a projection, and not of a product of queries and keys"
NOT_FOLLOWED = "takes a softmax that cannot be followed"
NOT_TAKEN = "takes a softmax whose weights no matrix product multiplies by values"
OVERWRITTEN = "writes its weights over its scores"
IN_COMPILED_CODE = "takes a softmax in code of torch.compile, which watch does not follow"
FEATURES = (
    "has features of a projection on one side of its softmax, and not on both, as cross-covariance "
    "attention has"
)


def unknown_operator(name: str) -> str:
    """Return the message for an attention that was computed by an operator that we do not know."""
    return (
        f"watch does not support {name} of PyTorch {torch.__version__}, which {{module}} calls. "
        "Call F.scaled_dot_product_attention instead, or exclude {module} with layers=."
    )


def unreadable(error: Exception) -> str:
    """Return the message for an attention whose observation raised an error."""
    if isinstance(error, UnfollowedError):
        return f"{EXPLICIT}, but {{module}} {error}. Exclude it with layers=."
    if isinstance(error, UnseenError):
        return str(error).replace("{", "{{").replace("}", "}}")
    reason = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".")
    reason = reason.replace("{", "{{").replace("}", "}}")
    return (
        f"watch could not observe the attention of {{module}} ({reason}); the model itself ran "
        "normally. Exclude it with layers=."
    )
