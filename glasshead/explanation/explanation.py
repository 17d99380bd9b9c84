"""Explanation: a trace told in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult

from glasshead.drawing import Block, Document, Heading, Note
from glasshead.explanation.language import Say
from glasshead.explanation.step import Step, json_ready


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation:
    """What an attention did for one query, step by step, in words and with its numbers.

    Print it with `print(explanation.text())` or, in colour, `rich.print(explanation)`; a notebook
    shows it by itself; `html()` is a page of its own, and `to_dict()` is for programs.

    Attributes:
        title: The title.
        language: One of en, tr, es, zh-Hant, zh-Hans.
        recipe: The choices that make this attention, as plain data.
        tokens: The words of the queries, as they were given.
        keys: The words of the keys.
        query: The position of the query that is told.
        index: The leading axes that are told, (batch…, head).
        steps: The steps, in order; a step that does nothing is left out.
        notes: What the caller has to add, shown below the opening.

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

    def text(self, width: int = 80) -> str:
        """Plain text, at most `width` cells wide.

        Errors: a ValueError where the width is below 20.
        """
        return self.document().text(width)

    def html(self) -> str:
        """A whole page in one file, with nothing from outside and no script."""
        return self.document().html()

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON knows it, the numbers in full.

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
        """The same explanation with a remark below the opening, such as where the vectors are from.

        Errors: a TypeError where the remark is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(f"with_note takes a text, and got {type(text).__name__}.")
        return replace(self, notes=(*self.notes, text))

    def document(self) -> Document:
        """The explanation as a drawing, to be put into a larger one."""
        words = Say(self.language).words()
        return Document(list(self._blocks()), title=self.title, language=self.language, words=words)

    def __getitem__(self, name: str) -> Step:
        """The step of this name.

        Errors: a KeyError where there is none, as where the step does nothing.
        """
        for step in self.steps:
            if step.name == name:
                return step
        known = ", ".join(step.name for step in self.steps)
        raise KeyError(f"the steps of this explanation are {known}, and got {name!r}.")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.document().__rich_console__(console, options)

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()

    def __repr__(self) -> str:
        steps = ", ".join(step.name for step in self.steps)
        return f"Explanation({self.title!r}, steps: {steps})"

    def _blocks(self) -> Iterator[Block]:
        """The opening, the caller's notes, and each step below its numbered title."""
        opening, *steps = self.steps
        yield from opening.blocks()
        yield from map(Note, self.notes)
        for place, step in enumerate(steps, start=1):
            yield Heading(f"{place}. {step.title}")
            yield from step.blocks()
