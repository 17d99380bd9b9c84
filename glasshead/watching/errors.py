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
    "watch sees a model as it runs, and not under torch.vmap: give the model the batch itself, "
    "which {module} was not given, or leave that out by layers=."
)
NUMBERLESS = (
    "watch sees attention that has numbers, and {module} ran on tensors without any, of the meta "
    "device or FakeTensorMode: give the model real ones, or leave it out by layers=."
)
TRACED = (
    "watch sees attention that is not being traced, and {module} ran within torch.jit.trace alone: "
    "run the model in the block, too, or leave the module out by layers=."
)
COMPILED = (
    "watch sees F.scaled_dot_product_attention in code of torch.compile, and {module} ran another "
    "attention within such code: run it as it was before, or leave it out by layers=."
)
COMPILED_SOFTMAX = (
    "watch sees F.scaled_dot_product_attention in code of torch.compile, and {module} computes a "
    "softmax of its own there: run it as it was before torch.compile, or leave it out by layers=."
)
SHARDED = (
    "watch tells the heads of tensor parallel by projections that are sharded by heads, and the "
    "weights of {module} are sharded in another way: shard them by ColwiseParallel and "
    "RowwiseParallel, or leave it out by layers=."
)
STANCE = (
    "watch compiles what is compiled anew, and where {module} ran the stance of torch.compiler "
    "does not let it: leave that stance, or leave the module out by layers=."
)
EXPLICIT = (
    "watch follows attention by hand from a product of queries and keys through a softmax to a "
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
        f"watch does not know {name} of PyTorch {torch.__version__}, by which {{module}} attends: "
        f"call F.scaled_dot_product_attention there instead, or leave it out by layers=."
    )


def unreadable(error: Exception) -> str:
    """Return the message for an attention whose observation raised an error."""
    if isinstance(error, UnfollowedError):
        return f"{EXPLICIT}, and {{module}} {error}: leave it out by layers=."
    if isinstance(error, UnseenError):
        return str(error).replace("{", "{{").replace("}", "}}")
    reason = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".")
    reason = reason.replace("{", "{{").replace("}", "}}")
    return (
        f"watch could not observe the attention of {{module}}, which ran all the same ({reason}): "
        f"leave it out by layers=."
    )
