"""The opening: what attention does, and by which recipe."""

import math

from torch import nn

from glasshead.drawing import Block, Paragraph, Table
from glasshead.explanation.figures import figure
from glasshead.explanation.maps import heat_map, shown_weights
from glasshead.explanation.normalizers import normalizer_formula
from glasshead.explanation.recipe import formula_of, part_name
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject

_MOST_WORDS = 40


def tell_opening(subject: Subject) -> Step:
    """What is about to be told, for which words."""
    say = subject.say
    return Step(
        name="opening",
        title=say("What attention does"),
        intro=(_whom(subject), _how(subject)),
        figures=(_result(subject), *_recipe(subject)),
        data={"query_names": subject.query_names, "key_names": subject.key_names},
    )


def _whom(subject: Subject) -> str:
    say = subject.say
    if subject.same_words:
        return say(
            "Attention lets every word look at the words of its sentence, itself included, and "
            "take from each as much as it needs. Here it is shown for one word, “{query}”, with "
            "every number.",
            query=subject.name,
        )
    return say(
        "Attention lets a word look at other words and take from each as much as it needs. Here "
        "the words that look and the words that are looked at are two different lists. It is shown "
        "for one of the words that look, “{query}”, with every number.",
        query=subject.name,
    )


def _how(subject: Subject) -> str:
    return subject.say(
        "It takes three steps. First, comparing: what “{query}” is looking for, its query, is "
        "compared with what every word has to offer, its key, and each comparison gives a score. "
        "Second, sharing out: the scores become weights, which say how much to take of each word. "
        "Third, mixing: what the words hand over, their values, is multiplied by these weights and "
        "added up. The result is the context vector of “{query}”.",
        query=subject.name,
    )


def _result(subject: Subject) -> Block:
    """Where it leads: the weights of the one word, before how they come about."""
    here = slice(subject.position, subject.position + 1)
    caption = subject.say("What “{query}” looks at, and how much", query=subject.name)
    return heat_map(subject, shown_weights(subject)[here], (subject.name,), caption=caption)


def _recipe(subject: Subject) -> tuple[Block, ...]:
    say, problem = subject.say, subject.problem
    choices = [
        (say("words"), _words(subject.query_names)),
        *([] if subject.same_words else [(say("words looked at"), _words(subject.key_names))]),
        (say("explained word"), subject.name),
        (say("score"), _part(problem.score, formula_of(problem.score))),
        (say("inverse temperature β"), _beta(subject)),
        *([] if problem.softcap is None else [(say("softcap"), figure(problem.softcap))]),
        *((say("bias"), part_name(bias)) for bias in problem.biases),
        (say("mask"), say("none") if problem.mask is None else repr(problem.mask)),
        (say("weights"), _part(problem.normalizer, normalizer_formula(problem.normalizer))),
        *([(say("dropout"), figure(problem.dropout))] if problem.dropout else []),
        (say("numbers in a vector"), _widths(subject)),
        *_place(subject),
    ]
    return (
        Table([say("choice"), say("here")], choices, caption=say("The recipe of this attention")),
        Paragraph(
            say(
                "Numbers are computed with more digits than the four decimals shown, so a sum of "
                "shown numbers may differ in its last digit."
            )
        ),
    )


def _part(part: nn.Module, formula: str) -> str:
    """A score or normalizer: its name, and its formula where it has one."""
    name = type(part).__name__
    return name if name == formula else f"{name}: {formula}"


def _beta(subject: Subject) -> str:
    """β with where it comes from."""
    score, width = subject.problem.score, subject.problem.query.shape[-1]
    if score.beta is None and width > 1 and subject.beta == width**-0.5:
        return f"1/√{width} = {figure(subject.beta)}"
    return figure(subject.beta)


def _widths(subject: Subject) -> str:
    """How wide the vectors are."""
    width, value_width = subject.keys.shape[-1], subject.values.shape[-1]
    if width == value_width:
        return str(width)
    return subject.say("{width}; in a value {value_width}", width=width, value_width=value_width)


def _place(subject: Subject) -> list[tuple[str, str]]:
    """Which head and which row of the batch are told, where there are several."""
    say, rows = subject.say, []
    batch = subject.index[:-1] if subject.problem.axes > 3 else subject.index
    if math.prod(subject.problem.query.shape[:-3]) > 1:
        where = ", ".join(map(str, batch))
        rows.append((say("row of the batch"), say("{place}, counted from 0", place=where)))
    if subject.heads > 1:
        told = say("{count}; explained here: head {head}", count=subject.heads, head=subject.head)
        rows.append((say("heads, counted from 0"), told))
    return rows


def _words(names: tuple[str, ...]) -> str:
    """The words in a row, of many the first ones."""
    more = [f"… ({len(names)})"] if len(names) > _MOST_WORDS else []
    return " · ".join([*names[:_MOST_WORDS], *more])
