"""Uncompiled: a model whose attention is still called, and not a part of other code."""

from torch import nn


def check_not_compiled(model: nn.Module, verb: str) -> None:
    """Raise where a part of the model is compiled: its attention is code that nobody calls.

    Args:
        model: What is to run.
        verb: What is to be done with it: "watch", "ablate".

    Errors: a ValueError.
    """
    for name, module in model.named_modules():
        if type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None:  # noqa: SLF001 - it has no other name
            raise ValueError(
                f"{verb} takes a model that is not compiled, and {name or 'the model'!r} is: "
                f"{verb} the model that was given to torch.compile."
            )
