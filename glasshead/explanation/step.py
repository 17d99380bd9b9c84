"""One step of an explanation: what is said, written out and drawn, and the numbers behind it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from glasshead.drawing import Block, Formula, Note, Paragraph


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Step:
    """One step, told: a few sentences, a formula, the formula with numbers, drawings, and why.

    Attributes:
        name: Which step it is, for programs: the same in each language.
        title: Its title.
        intro: What happens, a paragraph each.
        formula: The general formula; empty where there is none.
        numbers: The formula with the real numbers put into it, a line each.
        figures: Tables and maps, with what has to be said between them.
        why: Why the step is taken; empty where that goes without saying.
        data: The step's numbers in full, by name: tensors, numbers and texts.
    """

    name: str
    title: str
    intro: tuple[str, ...] = ()
    formula: str = ""
    numbers: tuple[str, ...] = ()
    figures: tuple[Block, ...] = ()
    why: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def blocks(self) -> Iterator[Block]:
        """What is drawn below the title, in order."""
        yield from map(Paragraph, self.intro)
        if self.formula or self.numbers:
            yield Formula("\n\n".join(filter(None, (self.formula, "\n".join(self.numbers)))))
        yield from self.figures
        if self.why:
            yield Note(self.why)

    def __repr__(self) -> str:
        return f"Step({self.name!r}, {self.title!r})"

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON knows it; a number that is not finite, as of a hidden pair, is None."""
        return {
            "name": self.name,
            "title": self.title,
            "text": list(self.intro),
            "formula": self.formula,
            "numbers": list(self.numbers),
            "why": self.why,
            "data": json_ready(self.data),
        }


def json_ready(value: Any) -> Any:
    """Tensors as lists, mappings as dicts, and None for every number that is not finite.

    >>> import torch
    >>> json_ready({"scores": torch.tensor([0.5, -torch.inf])})
    {'scores': [0.5, None]}
    """
    if isinstance(value, Tensor):
        return json_ready(value.detach().cpu().tolist())
    if isinstance(value, Mapping):
        return {str(name): json_ready(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
