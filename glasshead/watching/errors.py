"""Errors of a watch: their classes, and the reasons for which attention is not observed."""

import torch

from glasshead.recipe.validation import UnfitError

# Weak references to the memory of a tensor, by which attention by hand is followed.
WEAK_STORAGE = "torch.multiprocessing.reductions.StorageWeakRef"


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
    "watch observes a model as it runs, and not under torch.vmap, as {module} ran. Give the model "
    "the batch itself, or omit it with layers=."
)
NUMBERLESS = (
    "watch observes attention that has numbers, but {module} ran on tensors without any, of the "
    "meta device or FakeTensorMode. Give the model real ones, or omit it with layers=."
)
TRACED = (
    "watch observes attention that is not being traced, but {module} ran within torch.jit.trace "
    "only. Run the model in the block, too, or omit it with layers=."
)
COMPILED = (
    "watch observes F.scaled_dot_product_attention in code of torch.compile, but {module} ran "
    "another attention within such code. Run it uncompiled, or omit it with layers=."
)
COMPILED_SOFTMAX = (
    "watch observes F.scaled_dot_product_attention in code of torch.compile, but {module} computes "
    "a softmax of its own there. Run it uncompiled, or omit it with layers=."
)
SHARDED = (
    "watch finds the heads of tensor parallel by projections that are sharded by heads, but the "
    "weights of {module} are sharded in another way. Shard them by ColwiseParallel and "
    "RowwiseParallel, or omit it with layers=."
)
STANCE = (
    "watch compiles compiled code again, but the stance of torch.compiler does not let it where "
    "{module} ran. Leave that stance, or omit it with layers=."
)
EXPLICIT = (
    "watch follows explicit attention from a product of queries and keys through a softmax to a "
    "product with values"
)
OF_A_PROJECTION = "takes the softmax of a projection, and not of a product of queries and keys"
NOT_FOLLOWED = "takes a softmax that cannot be followed"
NOT_TAKEN = "takes a softmax whose weights no product has taken to values"
OVERWRITTEN = "writes its weights over its scores"
IN_COMPILED_CODE = "takes a softmax in code of torch.compile, which watch does not follow"
FEATURES = (
    "has features of a projection on one side of its softmax, and not on both, as cross-covariance "
    "attention has"
)


def unknown_operator(name: str) -> str:
    """Return the message for an attention that was computed by an operator that we do not know."""
    return (
        f"watch does not know {name} of PyTorch {torch.__version__}, by which {{module}} attends. "
        f"Call F.scaled_dot_product_attention there instead, or omit it with layers=."
    )


def unreadable(error: Exception) -> str:
    """Return the message for an attention whose observation raised an error."""
    if isinstance(error, UnfollowedError):
        return f"{EXPLICIT}, but {{module}} {error}. Omit it with layers=."
    if isinstance(error, UnseenError):
        return str(error).replace("{", "{{").replace("}", "}}")
    reason = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".")
    reason = reason.replace("{", "{{").replace("}", "}}")
    return (
        f"watch could not observe the attention of {{module}}, which ran all the same ({reason}). "
        f"Omit it with layers=."
    )
