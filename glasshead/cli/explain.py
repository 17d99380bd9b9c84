"""The command `explain`: explain one attention step by step."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from glasshead.cli.attention_options import parse_recipe
from glasshead.cli.inputs.files import check_sentence, input_file, output_file, shown
from glasshead.cli.inputs.messages import listed, number_option, one_of, print_stderr
from glasshead.cli.output import (
    OUTPUT,
    Html,
    Lang,
    Width,
    check_apart,
    check_language,
    check_target,
    check_width,
    chosen_language,
    print_drawing,
    print_json,
    spoken,
    write_page,
)
from glasshead.explanation.choices import RecipeOptions
from glasshead.ladder.worked_example import (
    EXAMPLES,
    TEXTS,
    WorkedExample,
    example_of,
    text_of,
    worked_example,
)
from glasshead.message import Message
from glasshead.recipe.mask_text import HELP as MASK_HELP

if TYPE_CHECKING:
    from glasshead.explanation import Explanation
    from glasshead.explanation.explain_trace import SentenceAttention
    from glasshead.recipe.problem import Trace

# Wider vectors than these are read from a file; a seed is what a generator takes.
_WIDEST_VECTOR, _LARGEST_SEED = 4096, 2**63 - 1
_SENTENCE, _RECIPE = "The sentence", "The attention"
_sentence_option = partial(Option, show_default=False, rich_help_panel=_SENTENCE)
_recipe_option = partial(Option, rich_help_panel=_RECIPE)


def explain(
    text: Annotated[
        str | None,
        Argument(
            metavar="TEXT",
            show_default=False,
            help="A sentence, whose words get made-up vectors, or those of --vectors. Without one, "
            'or "Hello shiny sun!": the worked example of the texts, with their vectors. Write -- '
            "before a sentence that begins with a dash.",
        ),
    ] = None,
    *,
    example: Annotated[
        str | None,
        _sentence_option(
            metavar="E",
            help='A worked example of the texts: shiny ("Hello shiny sun!") or journey ("Your '
            'journey starts with one step"), beside the numbers that they print.',
        ),
    ] = None,
    source: Annotated[
        str | None,
        _sentence_option(
            "--text",
            metavar="T",
            help="The text that works the example, with its matrices and its seed: A (Dikkat "
            "Mekanizmaları), B (Mecanismos de Atención), C (Day 13), D (Dikkat ve Dönüştürücü) or "
            "E (缩放点积注意力机制). If not given, A for shiny and E for journey.",
        ),
    ] = None,
    vectors: Annotated[
        str | None,
        _sentence_option(
            metavar="FILE",
            help="Your own vectors: a token and its numbers a row (CSV, tabs or semicolons too), "
            "or JSON; - reads standard input. Without TEXT, the rows in order are the sentence.",
        ),
    ] = None,
    query: Annotated[
        str | None,
        _sentence_option(
            metavar="WORD",
            help="The query to explain: a word, or a position, as in #2, the second token. If not "
            "given, the last word.",
        ),
    ] = None,
    seed: Annotated[
        int, number_option("Random seed of made-up vectors, parameters and dropout.", _SENTENCE)
    ] = 123,
    dim: Annotated[
        int | None,
        number_option(
            "Dimension of made-up vectors. If not given, 4, or that which --weights takes.",
            _SENTENCE,
        ),
    ] = None,
    mask: Annotated[
        str,
        _recipe_option(
            metavar="M",
            help=f"Attention mask: {MASK_HELP}",
        ),
    ] = "none",
    beta: Annotated[
        str | None,
        _recipe_option(
            metavar="B",
            help="Scale β of the scores: a number above 0, auto (1/√d), or inf (hardmax). If not "
            "given, auto for scaled-dot and 1 for others.",
        ),
    ] = None,
    score: Annotated[
        str | None,
        _recipe_option(
            metavar="S",
            help="Score function: scaled-dot, dot, cosine, gaussian or additive. If not given, "
            "scaled-dot, and dot for the worked example.",
        ),
    ] = None,
    normalizer: Annotated[
        str | None,
        _recipe_option(
            metavar="N",
            help="Normalizer of the scores: softmax, softmax-one, hardmax, sparsemax, entmax15 or "
            "sigmoid. If not given, softmax.",
        ),
    ] = None,
    heads: Annotated[
        int, number_option("Number of heads that the vectors are split into.", _RECIPE, metavar="H")
    ] = 1,
    head: Annotated[int, number_option("The head to explain, from 0.", _RECIPE)] = 0,
    dropout: Annotated[
        str | None,
        _recipe_option(
            metavar="P",
            help="Set weights to 0 with this probability, as in training; --seed says which. If "
            "not given, 0.",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        _recipe_option(
            metavar="FILE",
            help="Projections, as safetensors: W_query, W_key and W_value \\[d_in, d_out], or "
            "the state dict of nn.Linear layers, W_query.weight … with or without biases.",
        ),
    ] = None,
    columns: Annotated[
        bool,
        Option(
            "--columns",
            rich_help_panel=OUTPUT,
            help="Show the result in columns too, H = XA, as text D writes it.",
        ),
    ] = False,
    lang: Lang = None,
    html: Html = None,
    json: Annotated[
        bool, Option("--json", rich_help_panel=OUTPUT, help="Print JSON instead of text.")
    ] = False,
    width: Width = None,
) -> None:
    """Explain one attention step by step, with the formula, the numbers and why."""
    vectors_file = input_file(vectors, "--vectors")
    weights_file = input_file(weights, "--weights")
    page_file = output_file(html, "--html")
    if vectors_file is None:
        check_sentence(text)
    worked = example_for(text, vectors_file, example, source, causal=mask == "causal")
    recipe = recipe_for(
        text,
        vectors_file,
        example=worked,
        score=score,
        beta=beta,
        normalizer=normalizer,
        mask=mask,
        heads=heads,
        dropout=dropout,
    )
    _check_head(head, heads)
    check_width(width)
    check_language(lang)
    if page_file is not None:
        check_target(page_file)
        check_apart(page_file, (vectors_file, weights_file))
    _check_seed(seed)
    _check_dim(dim, made_up=vectors_file is None and worked is None)
    explanation = explain_sentence(
        text,
        vectors_file,
        recipe,
        query=query,
        seed=seed,
        dim=dim,
        head=head,
        weights=weights_file,
        lang=lang,
        json=json,
        example=worked,
        columns=columns,
    )
    if page_file is not None:
        write_page(page_file, explanation.html())
    if json:
        print_json(explanation.to_dict())
    else:
        print_drawing(explanation, width)
    if page_file is not None:
        print_stderr(spoken(lang)("The page is at {place}", place=shown(page_file)))


def example_for(
    text: str | None,
    vectors: Path | None,
    example: str | None = None,
    source: str | None = None,
    *,
    causal: bool = False,
) -> WorkedExample | None:
    """Return the worked example that the options name, or whose sentence the text is, if any.

    Args:
        text, vectors: The sentence and its file of vectors.
        example: A name of `EXAMPLES`.
        source: The letter of a text.
        causal: Whether the mask is causal.

    Errors: a ValueError where an option is not one of its choices, or does not go with another.
    """
    if example is not None:
        one_of(example, EXAMPLES, "--example")
        if text is not None or vectors is not None:
            other = "TEXT" if text is not None else "--vectors"
            raise ValueError(
                Message(
                    "--example has words and vectors of its own, and got {other} too: leave one "
                    "of them out.",
                    other=other,
                )
            )
    letter = None if source is None else one_of(source.strip().upper(), TEXTS, "--text")
    name = example or (example_of(text) if vectors is None else None)
    if name is None:
        if letter is not None:
            raise ValueError(
                Message(
                    "--text is about a worked example, and this sentence is none: leave it out, "
                    "or take --example shiny or --example journey."
                )
            )
        return None
    if text is None and example is None and letter is not None:
        name = next(known for known, texts in EXAMPLES.items() if letter in texts)
    if letter is not None and letter not in EXAMPLES[name]:
        others = Message.joined(
            " or ", [known for known, texts in EXAMPLES.items() if letter in texts]
        )
        raise ValueError(
            Message(
                "--text {letter} does not work the example {name}: take one of {choices}, or "
                "--example {others}.",
                letter=letter,
                name=name,
                choices=listed(EXAMPLES[name]),
                others=others,
            )
        )
    return worked_example(name, text_of(name, letter), causal=causal)


def recipe_for(
    text: str | None,
    vectors: Path | None,
    *,
    example: WorkedExample | None = None,
    score: str | None = None,
    **options: Any,
) -> RecipeOptions:
    """Parse the options of an attention; a worked example has its own score by default.

    Errors: as of `parse_recipe`.
    """
    example = example or example_for(text, vectors)
    default = "scaled-dot" if example is None else example.score
    return parse_recipe(score=default if score is None else score, **options)


def _check_head(head: int, heads: int) -> None:
    if not 0 <= head < heads:
        raise ValueError(
            Message(
                "--head takes a head from 0 to {value}, and got {head}: there are as many as "
                "--heads says.",
                value=heads - 1,
                head=head,
            )
        )


def _check_seed(seed: int) -> None:
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(
            Message(
                "--seed takes a whole number from 0 to 2^63 - 1, and got {seed}: try 123.",
                seed=seed,
            )
        )


def _check_dim(dim: int | None, *, made_up: bool) -> None:
    """Raise a ValueError where no made-up vector can have this dimension."""
    if dim is None:
        return
    if not 1 <= dim <= _WIDEST_VECTOR:
        raise ValueError(
            Message(
                "--dim takes a whole number from 1 to {widest_vector}, and got {dim}: try 4.",
                widest_vector=_WIDEST_VECTOR,
                dim=dim,
            )
        )
    if not made_up:
        raise ValueError(
            Message(
                "--dim is the width of made-up vectors, and these are not made up: leave it out."
            )
        )


def explain_sentence(
    text: str | None,
    vectors: Path | None,
    recipe: RecipeOptions,
    *,
    query: str | None = None,
    seed: int = 123,
    dim: int | None = None,
    head: int = 0,
    weights: Path | None = None,
    lang: str | None = None,
    json: bool = False,
    example: WorkedExample | None = None,
    columns: bool = False,
) -> "Explanation":
    """Explain the self-attention of a sentence, or of a worked example with its own matrices.

    Errors: a ValueError, TypeError or OSError in one sentence.
    """
    from glasshead.cli.inputs.sentences import query_position, sentence_of
    from glasshead.cli.inputs.tensors import read_weights
    from glasshead.explanation.embeddings import Projection, composed
    from glasshead.explanation.explain_trace import SentenceAttention

    language = chosen_language(lang, os.environ)
    matrices = None if weights is None else read_weights(weights)
    if dim is None and matrices is not None:
        dim = matrices.d_in
    most = max_tokens(recipe, json=json)
    sentence = sentence_of(text, vectors, dim=dim, seed=seed, most=most, example=example)
    embeddings = sentence.embeddings
    position = sentence.default_query
    if query is not None:
        position = query_position(embeddings.tokens, composed(query))
    if matrices is not None:
        projection = matrices.projection(embeddings.vectors)
    else:
        projection = sentence.example and Projection.of_the_texts(sentence.example)
    attention = SentenceAttention(
        sentence=sentence,
        recipe=recipe,
        projection=projection,
        own_projection=matrices is not None,
        columns=columns or (sentence.example is not None and sentence.example.columns),
        seed=seed,
    )
    trace = _trace(attention, json=json)
    return attention.explain(trace, query=position, head=head, lang=language)


# Measured for a pair of words: the steps and their drawing; as JSON, lists and text.
_BYTES_PER_PAIR, _BYTES_PER_PAIR_AS_JSON = 110, 650
_MAX_BYTES = 2**31
# These two keep [queries, keys, dim] twice.
_PAIRWISE = ("gaussian", "additive")


def _trace(attention: "SentenceAttention", *, json: bool) -> "Trace":
    """Trace the self-attention of a sentence.

    Args:
        attention: The attention.
        json: Whether every number will be written out, which takes more memory.

    Errors: a ValueError where the heads do not divide the widths, the trace would not fit into 2
    GiB, or numbers overflow.
    """
    embeddings, projection = attention.sentence.embeddings, attention.projection
    heads, widths = attention.recipe.heads, [embeddings.vectors.shape[-1]]
    if projection is not None:
        widths = [projection.W_query.shape[-1], projection.W_value.shape[-1]]
    for width in widths:
        _check_heads(width, heads)
    _check_size(len(embeddings.tokens), attention.recipe, widths[0] // heads, json=json)
    trace = attention.trace()
    if not (trace.scaled.isfinite().all() and trace.context.isfinite().all()):
        raise ValueError(
            Message(
                "the scores grow beyond all numbers: take smaller vectors, or a smaller --beta."
            )
        )
    return trace


def max_tokens(recipe: RecipeOptions, *, json: bool, dim: int = 0) -> int:
    """Return the maximum number of tokens, for any head width where `dim` is not given."""
    return int((_MAX_BYTES / _bytes_per_pair(recipe, dim, json=json)) ** 0.5)


def _bytes_per_pair(recipe: RecipeOptions, dim: int, *, json: bool) -> int:
    per_head = _BYTES_PER_PAIR_AS_JSON if json else _BYTES_PER_PAIR
    per_head += 2 * 8 * dim if recipe.score in _PAIRWISE else 0
    return per_head * recipe.heads


def _check_heads(width: int, heads: int) -> None:
    from glasshead.explanation.embeddings import head_counts

    if width % heads:
        raise ValueError(
            Message(
                "--heads {heads} does not divide vectors of {width} numbers into equal parts: "
                "take a divisor of {width} ({choices}).",
                heads=heads,
                width=width,
                choices=listed(map(str, head_counts(width))),
            )
        )


def _check_size(tokens: int, recipe: RecipeOptions, dim: int, *, json: bool) -> None:
    needed = _bytes_per_pair(recipe, dim, json=json) * tokens**2
    if needed > _MAX_BYTES:
        most = max_tokens(recipe, json=json, dim=dim)
        raise ValueError(
            Message(
                "{tokens:,} tokens are too many to explain in full (about {value:.1f} GiB with "
                "these options): give at most {most:,}.",
                tokens=tokens,
                value=needed / 2**30,
                most=most,
            )
        )
