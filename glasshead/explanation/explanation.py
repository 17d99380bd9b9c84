"""An explanation: the steps of a trace in words, formulas and numbers."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from glasshead.drawing import Block, Document, Drawn, Formula, Heading, Note, Paragraph, Walk
from glasshead.explanation.translations import Say


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Step:
    """One step of an explanation: sentences, a formula, its numbers, figures, and the reason.

    Attributes:
        name: Identifier of the step, the same in each language.
        title: Title.
        intro: Description, one paragraph each.
        formula: The general formula; empty if there is none.
        numbers: The formula with its numbers, one line each.
        figures: Tables and maps, with text between them.
        printed: What a text prints at this step, beside the exact numbers.
        why: The reason for the step; empty if it is obvious.
        data: The step's numbers in full, by name: tensors, numbers and texts.
    """

    name: str
    title: str
    intro: tuple[str, ...] = ()
    formula: str = ""
    numbers: tuple[str, ...] = ()
    figures: tuple[Block, ...] = ()
    printed: tuple[Block, ...] = ()
    why: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks below the title, in order."""
        yield from map(Paragraph, self.intro)
        if self.formula or self.numbers:
            yield Formula("\n\n".join(filter(None, (self.formula, "\n".join(self.numbers)))))
        yield from self.figures
        yield from self.printed
        if self.why:
            yield Note(self.why)

    def __repr__(self) -> str:
        return f"Step({self.name!r}, {self.title!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return the step as JSON data; numbers that are not finite become None."""
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
    """Convert tensors to lists, mappings to dicts, and numbers that are not finite to None.

    >>> import torch
    >>> json_ready({"scores": torch.tensor([0.5, -torch.inf])})
    {'scores': [0.5, None]}
    """
    if isinstance(value, Tensor):
        numbers = value.detach().cpu()
        # Numbers that are all finite need no look at each one.
        listed = numbers.tolist()
        return listed if numbers.isfinite().all() else json_ready(listed)
    if isinstance(value, Mapping):
        return {str(name): json_ready(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation(Drawn):
    """An explanation of an attention for one query, step by step, in words and numbers.

    Print it with `print(explanation.text())` or, in color, `rich.print(explanation)`; a notebook
    shows it by itself; `html()` is a page of its own, and `to_dict()` is for programs.

    Attributes:
        title: The title.
        language: One of en, tr, es, zh-Hant, zh-Hans.
        recipe: The attention settings, as plain data.
        tokens: The words of the queries, as they were given.
        keys: The words of the keys.
        query: The position of the explained query.
        index: The index of the leading axes, (batch…, head).
        steps: The steps, in order; a step without effect is omitted.
        notes: Notes of the caller, shown below the opening.
        walk: The figure of the query on its way to its context, for a page; None: there is none.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.tensor([[0.34, 0.22, 0.54], [0.53, 0.34, 0.98], [0.29, 0.54, 0.93]])
    >>> trace = gh.Attention(score=gh.Dot()).trace(x, x, x)
    >>> explanation = gh.explain(trace, tokens=["Hello", "shiny", "sun"], query="shiny")
    >>> [step.name for step in explanation.steps][:4]
    ['opening', 'inputs', 'scores', 'scaled']
    >>> print(explanation["scores"].numbers[0])
    s(Hello) = 0.53·0.34 + 0.34·0.22 + 0.98·0.54 = 0.7842
    """

    title: str
    language: str
    recipe: Mapping[str, Any]
    tokens: tuple[str, ...]
    keys: tuple[str, ...]
    query: int
    index: tuple[int, ...]
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    walk: Walk | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON data, with numbers in full.

        A number that is not finite, as the score of a hidden pair, is None.
        """
        return {
            "title": self.title,
            "language": self.language,
            "recipe": json_ready(self.recipe),
            "tokens": list(self.tokens),
            "keys": list(self.keys),
            "query": self.query,
            "index": list(self.index),
            "notes": list(self.notes),
            "steps": [step.to_dict() for step in self.steps],
        }

    def with_note(self, text: str) -> "Explanation":
        """Add a note below the opening, such as the source of the vectors.

        Errors: a TypeError if the note is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(f"with_note must be given a text, got {type(text).__name__}.")
        return replace(self, notes=(*self.notes, text))

    def document(self) -> Document:
        return self._document(self._blocks())

    def html(self) -> str:
        """Return a self-contained HTML page, with the figure of the walk below the opening."""
        return self._document(self._blocks(self.walk)).html()

    def _document(self, blocks: Iterator[Block]) -> Document:
        words = Say(self.language).words()
        return Document(list(blocks), title=self.title, language=self.language, words=words)

    def __getitem__(self, name: str) -> Step:
        """Return the step with this name.

        Errors: a KeyError if there is none, as for a step without effect.
        """
        for step in self.steps:
            if step.name == name:
                return step
        known = ", ".join(step.name for step in self.steps)
        raise KeyError(f"the step must be one of {known}, got {name!r}.")

    def __repr__(self) -> str:
        steps = ", ".join(step.name for step in self.steps)
        return f"Explanation({self.title!r}, steps: {steps})"

    def _blocks(self, figure: Block | None = None) -> Iterator[Block]:
        """Yield the opening, the caller's notes, and each step below its numbered title."""
        opening, *steps = self.steps
        yield from opening.blocks()
        yield from map(Note, self.notes)
        if figure is not None:
            yield figure
        for place, step in enumerate(steps, start=1):
            yield Heading(f"{place}. {step.title}")
            yield from step.blocks()
