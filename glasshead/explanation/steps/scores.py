"""Steps of the scores: products, scale, softcap, bias and mask."""

import torch
from rich.cells import cell_len

from glasshead.diagnosis.mask_input import RowSummary, hiding, only_later
from glasshead.drawing import Block, Formula, Paragraph
from glasshead.explanation.explanation import Step
from glasshead.explanation.normalizers import is_softmax, sharpens, why_hidden
from glasshead.explanation.printed_numbers import printed_row
from glasshead.explanation.subject import Column, Subject, formula_of, key_table
from glasshead.recipe.biases import ANY_BIAS, Bias
from glasshead.recipe.masks.base import picture
from glasshead.recipe.scores import Dot
from glasshead.recipe.tile import Tile


def explain_scores(subject: Subject) -> Step:
    """Explain the score of each key."""
    say, score = subject.say, subject.problem.score
    return Step(
        name="scores",
        title=say("Scores: how well does each key fit?"),
        intro=(
            say(
                "The query of “{query}” is compared with each key in turn. Every comparison gives "
                "one number, the score s: the larger it is, the better the two fit."
            ),
        ),
        formula=f"s = {score.expanded or formula_of(score)}",
        numbers=_score_numbers(subject),
        figures=_scores_table(subject),
        printed=printed_row(subject, "scores"),
        why=say.described(score.describe() or "")
        or say(
            "“{score}” is a score of your own, so only its results are shown here, not how it gets "
            "them.",
            score=type(score).__name__,
        ),
        data={"scores": subject.matrix("scores")},
    )


def _score_numbers(subject: Subject) -> tuple[str, ...]:
    """Write out the score's learned vectors, and the score of each key as the trace has it."""
    score, scores, write = subject.problem.score, subject.row("scores"), subject.write
    query, keys = subject.used
    learned = [(name, score.get_parameter(name)) for name in score.learned]
    vectors = [f"{name} = {write.vector(v.tolist())}" for name, v in learned if v.ndim == 1]

    def line(key: int) -> str:
        written = score.written(query.tolist(), keys[key].tolist(), write)
        result = write.figure(scores[key])
        return result if written is None else f"{written} = {result}"

    return (*vectors, *([""] if vectors else []), *subject.by_key("s", line))


def _scores_table(subject: Subject) -> tuple[Block, ...]:
    """Build the table of scores, where not all keys are written out."""
    others = len(subject.key_names) - len(subject.written)
    if not others:
        return ()
    scores = Column(subject.say("score"), subject.row("scores"))
    return Paragraph(_written_scores(subject, others)), key_table(subject, [scores])


def _written_scores(subject: Subject, others: int) -> str:
    """Say which of many keys are written out."""
    say, count = subject.say, len(subject.written)
    if not subject.seen:
        return say(
            "Only the first {count} keys are written out; the others ({others}) are computed the "
            "same way.",
            count=count,
            others=others,
        )
    if count == len(subject.seen):
        return say(
            "Only the keys that “{query}” may see are written out; the others ({others}) are "
            "computed the same way.",
            others=others,
        )
    return say(
        "Only the {count} keys that will get the largest weights are written out; the others "
        "({others}) are computed the same way.",
        count=count,
        others=others,
    )


def explain_scaling(subject: Subject) -> Step:
    """Explain the scaling of the scores by β."""
    write = subject.write
    data = {"beta": subject.beta, "scaled": subject.matrix("scaled")}
    if subject.beta == 1:
        return _unscaled(subject, data)
    say, beta = subject.say, write.figure(subject.beta)
    scores, scaled = subject.row("scores"), subject.row("scaled")
    by_width = subject.is_scaled_by_width
    width = subject.queries.shape[-1]
    if by_width:
        intro = say(
            "Every score is divided by √d, the square root of the dimension of the vectors; here d "
            "= {width}. In other words, it is multiplied by β = 1/√{width} = {beta}.",
            width=width,
            beta=beta,
        )
    else:
        intro = say("Every score is multiplied by β = {beta}, the inverse temperature.", beta=beta)
    return Step(
        name="scaled",
        title=_scaling_title(subject),
        intro=(intro,),
        formula="s ← β·s,   β = 1/√d" if by_width else "s ← β·s",
        numbers=subject.by_key(
            "β·s", lambda key: f"{beta}·{write.factor(scores[key])} = {write.figure(scaled[key])}"
        ),
        why=_why_root(subject, width) if by_width else _why_beta(subject),
        data=data,
    )


def _scaling_title(subject: Subject) -> str:
    say = subject.say
    if subject.is_scaled_by_width and isinstance(subject.problem.score, Dot):
        return say("Scaling (scaled dot-product attention): how sharp?")
    return say("Scaling: how sharp?")


def _unscaled(subject: Subject, data: dict) -> Step:
    say = subject.say
    text = say("The inverse temperature β is 1 here, so the scores stay as they are.")
    usual = say(
        "Most models multiply them by β = 1/√d at this point, where d is the dimension of the "
        "vectors; the last section shows why."
    )
    is_explained = is_softmax(subject) and len(subject.seen) > 1
    return Step(
        name="scaled",
        title=say("Scaling: how sharp?"),
        intro=(say.after_each_other(text, usual) if is_explained else text,),
        formula="s ← β·s,   β = 1",
        data=data,
    )


def _why_root(subject: Subject, width: int) -> str:
    return subject.say(
        "Why √d: a score is a sum of d products. If the numbers in the vectors are independent, "
        "with mean 0 and variance 1, each product has variance 1 and their sum has variance d, so "
        "that scores typically lie about √d from 0; here √{width} = {here}. Divided by √d they lie "
        "about 1 from 0 whatever the dimension, and no weight swallows all the others merely "
        "because of it.",
        width=width,
        here=subject.write.figure(width**0.5),
    )


def _why_beta(subject: Subject) -> str:
    if not sharpens(subject):
        return subject.say(
            "Why β: it sets how sharply scores are separated. The larger it is, the farther apart "
            "they lie; with 0 all of them are 0."
        )
    return subject.say(
        "Why β: it sets how sharply scores are separated. With a large β nearly all weight goes "
        "to the best key; with a small one the weights become more and more alike; with 0 all "
        "keys that may be seen weigh the same."
    )


def explain_softcap(subject: Subject) -> Step | None:
    """Explain the softcap, which bounds scores to between -c and c."""
    softcap, say, write = subject.problem.softcap, subject.say, subject.write
    if softcap is None:
        return None
    cap, scaled, capped = write.figure(softcap), subject.row("scaled"), subject.row("capped")

    def line(key: int) -> str:
        curve = f"tanh({write.figure(scaled[key])} / {write.factor(softcap)})"
        return f"{cap}·{curve} = {write.figure(capped[key])}"

    return Step(
        name="capped",
        title=say("Softcap: no score too large"),
        intro=(
            say(
                "The scores are bent smoothly, so that none leaves the range from −{cap} to {cap}.",
                cap=cap,
            ),
        ),
        formula="s ← c·tanh(s / c)",
        numbers=subject.by_key("s", line),
        why=say(
            "Why a cap: one enormous score would take all the weight and leave training nothing to "
            "correct. Scores that are small beside {cap} pass almost unchanged, for near 0 the "
            "curve tanh is almost a straight line of slope 1.",
            cap=cap,
        ),
        data={"softcap": softcap, "capped": subject.matrix("capped")},
    )


_MOST_NAMED = 24
_FEW = 2


def explain_masking(subject: Subject) -> Step | None:
    """Explain the biases, then which keys are hidden; None without either."""
    problem, say = subject.problem, subject.say
    if problem.mask is None and not problem.biases:
        return None
    biases = [
        say.described(bias.describe() if isinstance(bias, Bias) else ANY_BIAS)
        for bias in problem.biases
    ]
    masks = [] if problem.mask is None else problem.mask.conjuncts or [problem.mask]
    hides = _hides(subject)
    where = say("where hidden")
    formulas = ["s ← s + b"] * bool(biases) + [f"s ← -∞   ({where})"] * hides
    data = {"masked": subject.matrix("masked"), "visible": subject.visible, "bias": subject.bias}
    return Step(
        name="masked",
        title=_title(subject),
        intro=(
            *biases,
            *(say.described(mask.describe()) for mask in masks),
            *_inverted(subject),
            *_count(subject),
        ),
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
    """Return whether a key is hidden from any query."""
    return subject.visible is not None and not bool(subject.visible.all())


def _inverted(subject: Subject) -> tuple[str, ...]:
    """Warn of a mask by which words see only the words after them."""
    if not subject.same_words:
        return ()
    visible = torch.ones(2 * [len(subject.key_names)], dtype=torch.bool)
    if subject.visible is not None:
        visible = visible & subject.visible
    if subject.bias is not None:
        # A mask of large finite numbers.
        visible = visible & ~hiding(subject.bias).cells
    if not bool(only_later(visible, RowSummary.of(visible), 0)):
        return ()
    return (
        subject.say(
            "The mask looks inverted: words see only later words, and no word sees an earlier one. "
            "In torch.nn.MultiheadAttention True hides a pair; in F.scaled_dot_product_attention "
            "True shows it."
        ),
    )


def _count(subject: Subject) -> tuple[str, ...]:
    """Say how many keys are hidden from the query."""
    if subject.visible is None:
        return ()
    say, keys = subject.say, len(subject.key_names)
    hidden = keys - len(subject.seen)
    if not hidden and _hides(subject):
        text = say("“{query}” sees all of the keys; some other words do not.")
        return (text,)
    if not hidden:
        return (say("“{query}” may see all of the keys."),)
    if hidden == keys:
        return (say("“{query}” may see none of the keys."),)
    return (
        say(
            "Of the {keys} keys, “{query}” may see {seen}; hidden from it: {hidden}.",
            keys=keys,
            seen=len(subject.seen),
            hidden=hidden,
        ),
    )


def _numbers(subject: Subject) -> tuple[str, ...]:
    """Write out the masked scores, with the biases added."""
    write = subject.write
    before, after, seen = subject.row("capped"), subject.row("masked"), set(subject.seen)
    bias = None if subject.bias is None else subject.bias[subject.position].tolist()

    def line(key: int) -> str:
        result = write.figure(after[key])
        if bias is None or key not in seen:
            return result
        return f"{write.figure(before[key])} + {write.factor(bias[key])} = {result}"

    # Among many keys, the first hidden ones are written out too.
    hidden = sorted(set(range(len(subject.key_names))) - seen)
    return subject.by_key("s", line, sorted({*subject.written, *hidden[:_FEW]}))


def _table(subject: Subject) -> tuple[Block, ...]:
    """Build the table of scores before and after a bias, where not all keys are written out."""
    if subject.bias is None or len(subject.written) == len(subject.key_names):
        return ()
    say = subject.say
    columns = [
        Column(say("score before"), subject.row("capped")),
        Column(say("score after"), subject.row("masked")),
    ]
    return (key_table(subject, columns),)


def _picture(subject: Subject) -> tuple[Block, ...]:
    """Draw the mask: a line per query, a symbol per key."""
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
