"""Bias and mask: what is added to scores, and what is hidden."""

from rich.cells import cell_len

from glasshead.drawing import Block, Formula, Paragraph
from glasshead.explanation.figures import aligned, factor, figure
from glasshead.explanation.masks import bias_told, mask_told
from glasshead.explanation.normalizers import why_hidden
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject
from glasshead.explanation.tables import Column, key_table
from glasshead.recipe.masks.picture import picture
from glasshead.recipe.tile import Tile

_MOST_NAMED = 24
_FEW = 2


def tell_masking(subject: Subject) -> Step | None:
    """The biases, then which keys are hidden; None without either."""
    problem, say = subject.problem, subject.say
    if problem.mask is None and not problem.biases:
        return None
    biases = tuple(bias_told(bias, say) for bias in problem.biases)
    masks = () if problem.mask is None else mask_told(problem.mask, say)
    hides = _hides(subject)
    where = say("where hidden")
    formulas = ["s ← s + b"] * bool(biases) + [f"s ← -∞   ({where})"] * hides
    data = {"masked": subject.matrix("masked"), "visible": subject.visible, "bias": subject.bias}
    return Step(
        name="masked",
        title=_title(subject),
        intro=(*biases, *masks, *_count(subject)),
        formula=",   ".join(formulas),
        numbers=_numbers(subject),
        figures=(*_table(subject), *(_picture(subject) if hides else ())),
        why=_why(subject) if hides else "",
        data={name: part for name, part in data.items() if part is not None},
    )


def _title(subject: Subject) -> str:
    problem, say = subject.problem, subject.say
    if problem.mask is None:
        return say("Bias: what is added")
    return say("Bias and mask") if problem.biases else say("Mask: what may be seen")


def _hides(subject: Subject) -> bool:
    """Whether a key is hidden from any query."""
    return subject.visible is not None and not bool(subject.visible.all())


def _count(subject: Subject) -> tuple[str, ...]:
    """How many keys are hidden from the query."""
    if subject.visible is None:
        return ()
    say, keys = subject.say, len(subject.key_names)
    hidden = keys - len(subject.seen)
    if not hidden and _hides(subject):
        told = say("“{query}” sees all of the keys; some other words do not.", query=subject.name)
        return (told,)
    if not hidden:
        return (say("“{query}” may see all of the keys.", query=subject.name),)
    if hidden == keys:
        return (say("“{query}” may see none of the keys.", query=subject.name),)
    return (
        say(
            "Of the {keys} keys, “{query}” may see {seen}; hidden from it: {hidden}.",
            keys=keys,
            seen=len(subject.seen),
            hidden=hidden,
            query=subject.name,
        ),
    )


def _numbers(subject: Subject) -> tuple[str, ...]:
    """Each score after, and with a bias before."""
    before, after, seen = subject.row("capped"), subject.row("masked"), set(subject.seen)
    bias = None if subject.bias is None else subject.bias[subject.position].tolist()
    lines = []
    for key in _written(subject):
        result = figure(after[key])
        if bias is not None and key in seen:
            result = f"{figure(before[key])} + {factor(bias[key])} = {result}"
        lines.append((f"s({subject.key_names[key]})", result))
    return aligned(lines)


def _written(subject: Subject) -> list[int]:
    """The keys that are written out; among many, the first hidden ones too."""
    hidden = sorted(set(range(len(subject.key_names))) - set(subject.seen))
    return sorted({*subject.written, *hidden[:_FEW]})


def _table(subject: Subject) -> tuple[Block, ...]:
    """Before and after a bias, for more keys than are written out."""
    if subject.bias is None or len(subject.written) == len(subject.key_names):
        return ()
    say = subject.say
    columns = [
        Column(say("score before"), subject.row("capped")),
        Column(say("score after"), subject.row("masked")),
    ]
    return (key_table(subject, columns),)


def _picture(subject: Subject) -> tuple[Block, ...]:
    """The mask: a line a query, a sign a key."""
    if subject.visible is None:
        return ()
    visible = subject.visible
    queries, keys = visible.shape
    if max(queries, keys) > _MOST_NAMED:
        said = subject.say(
            "The whole mask in blocks, queries from top to bottom and keys from left to right: ■ "
            "all may be seen, · all hidden, and what lies between is shaded."
        )
        tile = Tile(range(queries), range(keys))
        drawn = picture(lambda t: visible[t.queries.start : t.queries.stop], tile, 0, _MOST_NAMED)
        return Paragraph(said), Formula(drawn)
    said = subject.say(
        "The whole mask, a row for each query and a column for each key: ■ may be seen, · is "
        "hidden."
    )
    width = max(map(cell_len, subject.query_names))
    lines = []
    for query, name in enumerate(subject.query_names):
        signs = " ".join("■" if seen else "·" for seen in visible[query].tolist())
        mark = "▸" if query == subject.position else " "
        lines.append(f"{mark} {name}{' ' * (width - cell_len(name))}  {signs}")
    return Paragraph(said), Formula("\n".join(lines))


def _why(subject: Subject) -> str:
    if not subject.seen:
        return subject.say(
            "Why −∞: a score of −∞ means that no weight is possible. Here all of them are −∞, and "
            "there is nothing to share out."
        )
    return why_hidden(subject)
