"""The routes under `/api`: endpoints of each view and their parameters."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field
from torch import Tensor

from glasshead.explanation.translations import LANGUAGES
from glasshead.message import Message
from glasshead.studio.answers import (
    LINES,
    NUMBERS,
    REFUSALS,
    Job,
    Streamed,
    numbers,
    run_job,
    run_reading_job,
    say_of,
)
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.strings import words
from glasshead.studio.studio import Limits, Studio, about
from glasshead.studio.subject import ModelPass
from glasshead.studio.views import heads as view
from glasshead.studio.views.alignment import USUAL_WIDTH, WIDTHS, translations, weights
from glasshead.studio.views.atlas import TOKENS, Atlases
from glasshead.studio.views.heads_compared import (
    InductionTests,
    check_difference,
    compared,
    difference,
    no_difference,
)
from glasshead.studio.views.model import WholeModel
from glasshead.studio.views.picture import Pictures
from glasshead.studio.views.prompt import LONGEST_PROMPT, Prompts, described
from glasshead.studio.views.reading import is_read
from glasshead.studio.views.steps import steps_data, steps_words
from glasshead.studio.views.steps_cell import Cells
from glasshead.studio.views.steps_request import Beta, Mask, Normalizer, Source, StepsRequest

# Characters that Python's `str.strip` removes; some are not in the `\s` of JSON Schema.
_SPACE = r"\s\x1c-\x1f\x85"
# A text needs a character that is not white space.
HAS_A_WORD = f"[^{_SPACE}]"
# A sentence needs a word or punctuation mark, and zero-width blanks are neither.
HAS_A_SIGN = f"[^{_SPACE}\u200b\ufeff]"

NAME = r"^[0-9A-Za-z]{1,64}$"
"""Pattern of text names."""

_NAMED = "The name of a text, as it was given when the text was sent."
TextName = Annotated[str, Query(pattern=NAME, description=_NAMED)]
TextInPath = Annotated[str, Path(pattern=NAME, description=_NAMED)]


def _language_codes() -> str:
    """Return the pattern of language codes, in any case and with any region.

    >>> _language_codes()[:26]
    '^([eE][nN]|[tT][rR]|[eE][s'
    """
    languages = dict.fromkeys(code.partition("-")[0] for code in LANGUAGES)
    codes = ("".join(f"[{c}{c.upper()}]" for c in code) for code in languages)
    return rf"^({'|'.join(codes)})([-_.@][\s\S]*)?$"


Language = Annotated[
    str,
    Query(
        max_length=35,
        json_schema_extra={"pattern": _language_codes()},
        description="A code of a language, such as en, tr, es, zh-Hant or zh-Hans.",
    ),
]


def words_of(limits: Limits) -> str:
    """Return the pattern of a sentence with at least one word, and at most `limits.words`."""
    word, space = f"[^{_SPACE}]+", f"[{_SPACE}]"
    return rf"^{space}*({word}{space}+){{0,{limits.words - 1}}}{word}{space}*$"


def has_a_word(pattern: str) -> dict[str, Any]:
    """Return the JSON Schema of a text with a word; the library itself refuses the others."""
    return {"minLength": 1, "pattern": pattern}


def shell_routes(studio: Studio) -> APIRouter:
    """Create the routes that all views share."""
    routes = APIRouter(tags=["shell"], responses=REFUSALS)
    # A character takes at least a byte; the exact size in bytes is checked on arrival.
    described = {**has_a_word(HAS_A_WORD), "maxLength": studio.limits.text}

    @routes.get("/about")
    def description(request: Request) -> dict[str, Any]:
        """Describe the studio: its subject, views, limits, languages and colours."""
        return about(studio, say_of(request.scope))

    @routes.get("/sample")
    async def sample(request: Request) -> dict[str, str]:
        """Return the text that a view of the model begins with, and where it is from.

        Of a run: from its held-out part. 404 where there is no model.
        """
        return asdict(await run_job(request, lambda _: studio.subject.sample()))

    @routes.get("/health")
    def health() -> dict[str, str]:
        """Return the identifier of this start of the studio."""
        return {"id": studio.id}

    @routes.get("/words")
    def spoken(lang: Language = "en") -> dict[str, str]:
        """Return the page's strings in a language: en, tr, es, zh-Hant or zh-Hans."""
        return words(lang)

    @routes.post("/texts")
    def add_text(
        text: Annotated[str, Body(embed=True, json_schema_extra=described)],
    ) -> dict[str, str]:
        """Store a text and return its name, by which views refer to it.

        413 where it has too many bytes in UTF-8.
        """
        return {"id": studio.texts.add(text)}

    @routes.get("/texts/{name}")
    def text(name: TextInPath) -> dict[str, str]:
        """Return a stored text; 410 where it is no longer stored."""
        return {"text": studio.texts[name]}

    return routes


Place = Annotated[int, Field(ge=0, le=2**31 - 1, description="Counted from 0.")]


class HeadQuery(BaseModel):
    """A head of a layer."""

    layer: Place
    head: Place


ModelNumber = Annotated[int, Field(ge=0, le=255, description="Of several models, from 0.")]


class ReadingQuery(BaseModel):
    """A text that a model has read."""

    text: Annotated[str, Field(pattern=NAME, description=_NAMED)]
    model: ModelNumber = 0


class ComparedQuery(ReadingQuery):
    """A text that a model has read, and another one, or that of another model."""

    minus: Annotated[
        str | None, Field(pattern=NAME, description="The name of a text to subtract.")
    ] = None
    minus_model: ModelNumber = 0


class HeadOfTextQuery(ComparedQuery, HeadQuery):
    """A head of a layer that has read a text, and perhaps of another reading to subtract."""


def steps_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `steps`."""
    routes = APIRouter(prefix="/steps", tags=["steps"], responses=REFUSALS)
    limits = studio.limits

    class StepsQuery(BaseModel):
        """The parameters of `StepsRequest`, within the limits of this studio."""

        text: Annotated[
            str | None,
            Field(max_length=limits.sentence, json_schema_extra=has_a_word(HAS_A_SIGN)),
        ] = None
        source: Source | None = None
        beta: Beta | None = None
        mask: Mask = "none"
        normalizer: Normalizer = "softmax"
        heads: Annotated[int, Field(ge=1, le=4)] = 1
        head: Annotated[int, Field(ge=0, le=3)] = 0
        query: Annotated[int | None, Field(ge=0, lt=limits.words)] = None

    # FastAPI before 0.160 takes no other parameter beside a model of them.
    class WordsQuery(StepsQuery):
        """The parameters, and the language of the explanation."""

        lang: Language = "en"

    @routes.get("")
    def matrices(settings: Annotated[StepsQuery, Query()]) -> dict[str, Any]:
        """Return the matrices of a sentence's attention at full precision, and the options.

        400 where parameters do not fit each other: a text that does not work the example, heads
        that do not divide the dimension, a head index out of range, or β = ∞ with a normalizer that
        has no hard limit. 413 where the sentence has too many words and punctuation marks.
        """
        return steps_data(StepsRequest(**settings.model_dump()), limits)

    @routes.get("/words")
    def explanation(settings: Annotated[WordsQuery, Query()]) -> dict[str, Any]:
        """Explain one word's attention step by step, in one of five languages.

        400 and 413 as for the matrices, and 400 where the sentence has no word at `query`.
        """
        asked = settings.model_dump(exclude={"lang"})
        return steps_words(StepsRequest(**asked), settings.lang, limits)

    cells = Cells(studio)

    class CellQuery(HeadQuery):
        """A query of a head that has read a text, and a key to show."""

        text: Annotated[str, Field(pattern=NAME, description=_NAMED)]
        query: Place | None = None
        key: Place | None = None

    @routes.get("/cell")
    async def cell(request: Request, of: Annotated[CellQuery, Query()]) -> dict[str, Any]:
        """Return q, k, v, scores, weights and context of one query of a head of the model.

        400 where there is no such layer, head, query or key, or the model does not show its
        steps, 404 where there is no model, 413 where the text takes too much memory.
        """
        return await run_reading_job(
            request,
            lambda: view.is_there(studio, of.text),
            lambda work: cells.row(of.text, of.layer, of.head, of.query, of.key, work),
        )

    return routes


class TileQuery(HeadQuery):
    """A tile of a head's map."""

    level: Annotated[int, Field(ge=0, le=31, description="Of blocks of 2^level tokens.")]
    row: Place
    column: Place


class TokensQuery(BaseModel):
    """The tokens in [start, stop)."""

    start: Place
    stop: Place


async def _of_readings(
    studio: Studio, request: Request, of: ComparedQuery, select: Callable[[list[ModelPass]], Any]
) -> Any:
    """Run a job over a reading, and over that to subtract where one is named."""
    named = [(of.text, of.model)]
    if of.minus is not None:
        named.append((of.minus, of.minus_model))
    return await run_reading_job(
        request,
        lambda: all(view.is_there(studio, *one) for one in named),
        lambda work: select([view.reading_of(studio, one, work, at) for one, at in named]),
    )


def _add_comparison(routes: APIRouter, studio: Studio) -> None:
    """Add the routes that compare heads: of two readings, or on repeated random tokens."""
    tests = InductionTests(studio)

    @routes.get("/compared")
    async def compared_heads(
        request: Request, of: Annotated[ComparedQuery, Query()]
    ) -> dict[str, Any]:
        """Return differences of entropy and scores, and why the weights have none: `refused`.

        400 where no text to subtract is named.
        """
        if of.minus is None:
            raise Refusal(Message("a comparison takes two texts, and got one: name `minus`, too."))
        pair = await _of_readings(studio, request, of, lambda readings: readings)
        why = no_difference(*pair)
        return compared(*pair) | {"refused": why and say_of(request.scope).told(why)}

    @routes.get("/roles", response_class=Response, responses=LINES)
    def roles(model: Annotated[int, Query(ge=0, le=255)] = 0) -> Response:
        """Find the roles of the heads on repeated random tokens, as `find_roles` does."""
        return Streamed(studio, lambda work: tests.roles(model, work))


def heads_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `heads`."""
    routes = APIRouter(prefix="/heads", tags=["heads"], responses=REFUSALS)
    _add_comparison(routes, studio)

    async def read(
        request: Request, of: ComparedQuery, select: Callable[[ModelPass], Tensor]
    ) -> Response:
        def selected(readings: list[ModelPass]) -> Tensor:
            if len(readings) == 1:
                return select(readings[0])
            check_difference(*readings)
            return difference(*map(select, readings))

        return numbers(await _of_readings(studio, request, of, selected))

    @routes.get("/reading", response_class=Response, responses=LINES)
    def reading(of: Annotated[ReadingQuery, Query()]) -> Response:
        """Read a text and return its tokens, layers, heads, roles and mean entropies."""
        return Streamed(
            studio,
            lambda work: view.summary(view.reading_of(studio, of.text, work, of.model), work),
        )

    @routes.get("/maps", response_class=Response, responses=NUMBERS)
    async def maps(request: Request, of: Annotated[ComparedQuery, Query()]) -> Response:
        """Return pooled maps of all heads, and the weight of the first token in a last column.

        400 where two readings have no difference, 413 where the text takes too much memory.
        """
        return await read(request, of, view.small_maps)

    @routes.get("/weights", response_class=Response, responses=NUMBERS)
    async def weights(request: Request, of: Annotated[HeadOfTextQuery, Query()]) -> Response:
        """Return the weights of one head; rows are queries, columns are keys.

        400 where there is no such layer or head, or two readings have no difference; 413 where the
        text takes too much memory.
        """
        return await read(request, of, lambda one: view.whole_map(one, of.layer, of.head))

    @routes.get("/along", response_class=Response, responses=NUMBERS)
    async def along(request: Request, of: Annotated[HeadOfTextQuery, Query()]) -> Response:
        """Return entropy and mean distance of each query of a head, and mass received per key.

        400 where there is no such layer or head, or two readings have no difference; 413 where the
        text takes too much memory.
        """
        return await read(request, of, lambda one: view.along(one, of.layer, of.head))

    return routes


def _one_text(text: TextName) -> str:
    return text


def _no_text_or_one(
    text: Annotated[
        str | None, Query(pattern=NAME, description="Stored weights are of no text that is named.")
    ] = None,
) -> str | None:
    return text


_Heads = Annotated[
    str,
    Query(
        max_length=2**14,
        pattern=r"^([0-9]{1,5}\.[0-9]{1,5}(,[0-9]{1,5}\.[0-9]{1,5})*)?$",
        description="Heads as layer.head, separated by commas, counted from 0.",
    ),
]
_Shown = Annotated[
    str,
    Query(
        max_length=200,
        pattern=r"^[0-9]{1,5}\.[0-9]{1,5}(,[0-9]{1,5}\.[0-9]{1,5}){0,11}$",
        description="One to twelve heads, as layer.head.",
    ),
]
# Probabilities of the page, by the temperature and the number of predictions.
_Temperature = Annotated[float, Query(ge=0, le=10, allow_inf_nan=False)]
_Top = Annotated[int, Query(ge=1, le=50)]


def _heads(listed: str) -> list[tuple[int, int]]:
    """Parse a list of heads.

    >>> _heads("1.3,4.0")
    [(1, 3), (4, 0)]
    """
    pairs = (one.split(".") for one in listed.split(",") if one)
    return [(int(layer), int(head)) for layer, head in pairs]


_Prompt = Annotated[str, Query(max_length=LONGEST_PROMPT, json_schema_extra=has_a_word(HAS_A_SIGN))]


def prompt_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `prompt`."""
    routes = APIRouter(prefix="/prompt", tags=["prompt"], responses=REFUSALS)
    prompts = Prompts(studio)

    @routes.get("")
    async def predictions(
        request: Request,
        text: _Prompt,
        without: _Heads = "",
        top: _Top = 10,
        temperature: _Temperature = 1.0,
    ) -> dict[str, Any]:
        """Return what the model predicts after a prompt, with heads taken away and with all.

        400 where there is no such head, 404 where there is no model.
        """
        away = _heads(without)
        return await run_job(
            request, lambda work: prompts.predictions(text, away, top, temperature, work)
        )

    @routes.get("/maps", response_class=Response, responses=NUMBERS)
    async def maps(request: Request, text: _Prompt, without: _Heads = "") -> Response:
        """Return pooled maps of all heads, and the weight of the first token in a last column."""
        away = _heads(without)
        return numbers(await run_job(request, lambda work: prompts.maps(text, away, work)))

    @routes.get("/weights", response_class=Response, responses=NUMBERS)
    async def weights(
        request: Request, text: _Prompt, heads: _Shown, without: _Heads = ""
    ) -> Response:
        """Return the weights of some heads, [heads, queries, keys]; −0 where the mask hides.

        400 where there is no such head.
        """
        away, shown = _heads(without), _heads(heads)
        return numbers(
            await run_job(request, lambda work: prompts.weights(text, away, shown, work))
        )

    @routes.get("/model")
    async def model(request: Request) -> dict[str, Any] | None:
        """Describe the model: its name, layers, heads and parameters; null where none opens."""
        return await run_job(request, lambda _: described(studio))

    return routes


def model_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `model`."""
    routes = APIRouter(prefix="/model", tags=["model"], responses=REFUSALS)
    whole = WholeModel(studio)

    class HeadOfPromptQuery(HeadQuery):
        """A head of a layer that has read a prompt."""

        text: Annotated[
            str, Field(max_length=LONGEST_PROMPT, json_schema_extra=has_a_word(HAS_A_SIGN))
        ]

    @routes.get("")
    async def told(request: Request, text: _Prompt) -> dict[str, Any]:
        """Return the layers, heads and tokens of a text, and what its heads are lit by.

        404 where there is no model.
        """
        return await run_job(request, lambda work: whole.told(text, work))

    @routes.get("/writes", response_class=Response, responses=NUMBERS)
    async def writes(request: Request, text: _Prompt) -> Response:
        """Return the norm and the share of what each head writes, [2, heads, queries]."""
        return numbers(await run_job(request, lambda work: whole.writes(text, work)))

    @routes.get("/reads", response_class=Response, responses=NUMBERS)
    async def reads(
        request: Request, text: _Prompt, query: Annotated[int, Query(ge=0, le=2**31 - 1)]
    ) -> Response:
        """Return the weights of a query in all heads, [heads, keys]; 400 where it is not there."""
        return numbers(await run_job(request, lambda work: whole.reads(text, query, work)))

    @routes.get("/map", response_class=Response, responses=NUMBERS)
    async def map_of_head(request: Request, of: Annotated[HeadOfPromptQuery, Query()]) -> Response:
        """Return the weights of one head; −0 where the mask hides.

        400 where there is no such layer or head.
        """
        return numbers(
            await run_job(request, lambda work: whole.map(of.text, of.layer, of.head, work))
        )

    return routes


_Image = Annotated[
    str | None,
    Query(
        pattern=NAME,
        description="The name of a picture, as it was given when it was sent; without one, an "
        "example.",
    ),
]
_QueryToken = Annotated[int, Query(ge=0, le=2**31 - 1, description="A token, counted from 0.")]
_FILE = {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}


def picture_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `picture`."""
    routes = APIRouter(prefix="/picture", tags=["picture"], responses=REFUSALS)
    pictures = Pictures(studio)

    @routes.post("", openapi_extra={"requestBody": _FILE})
    async def add(request: Request) -> dict[str, str]:
        """Store the picture of a file and return its name.

        400 where it is none that can be opened, 413 where it is too large.
        """
        content = await request.body()
        return {"id": await run_job(request, lambda _: pictures.add(content))}

    @routes.get("")
    async def told(request: Request, image: _Image = None) -> dict[str, Any]:
        """Return the layers, heads and patches of a picture; 404 where there is no vision model."""
        return await run_job(request, lambda work: pictures.told(image, work))

    @routes.get("/pixels", response_class=Response, responses=NUMBERS)
    async def pixels(request: Request, image: _Image = None) -> Response:
        """Return the picture as the model is given it, [height, width, 3], from 0 to 1."""
        return numbers(await run_job(request, lambda work: pictures.pixels(image, work)))

    @routes.get("/maps", response_class=Response, responses=NUMBERS)
    async def maps(request: Request, query: _QueryToken, image: _Image = None) -> Response:
        """Return the weights of the patches in each head and, last, in the rollout.

        400 where there is no such query.
        """
        return numbers(await run_job(request, lambda work: pictures.maps(image, query, work)))

    @routes.get("/sums")
    async def sums(
        request: Request, query: _QueryToken, image: _Image = None
    ) -> dict[str, list[float]]:
        """Return the sums of the weights of all patches and of other tokens, as of the maps."""
        return await run_job(request, lambda work: pictures.sums(image, query, work))

    return routes


def atlas_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `atlas`."""
    routes = APIRouter(prefix="/atlas", tags=["atlas"], responses=REFUSALS)
    atlases = Atlases(studio)
    named = Depends(_no_text_or_one if studio.subject.is_file else _one_text)

    async def answered(request: Request, text: str | None, job: Job) -> Any:
        return await run_reading_job(
            request, lambda: text is None or is_read(studio, text, studio.limits.atlas), job
        )

    @routes.get("/read", response_class=Response, responses=LINES)
    def read(text: Annotated[str | None, named]) -> Response:
        """Read a text; stream progress, then its length, layers and heads."""
        return Streamed(studio, lambda work: atlases.opened(text, work))

    @routes.get("/map")
    async def size(
        request: Request, text: Annotated[str | None, named], of: Annotated[HeadQuery, Query()]
    ) -> dict[str, Any]:
        """Return the size and the levels of a head's map.

        400 where there is no such layer or head, 413 where the text takes too much memory.
        """
        return await answered(
            request, text, lambda work: atlases.map(text, of.layer, of.head, work)
        )

    @routes.get("/overview", response_class=Response, responses=LINES)
    def overview(text: Annotated[str | None, named], of: Annotated[HeadQuery, Query()]) -> Response:
        """Compute the overview of a head; stream progress, then its largest mean weight."""
        return Streamed(studio, lambda work: atlases.overview(text, of.layer, of.head, work))

    @routes.get("/tile", response_class=Response, responses=NUMBERS)
    async def tile(
        request: Request, text: Annotated[str | None, named], of: Annotated[TileQuery, Query()]
    ) -> Response:
        """Return up to 256 × 256 blocks: sums over a block's keys, means over its queries.

        400 where there is no such layer, head or tile, 409 where it needs the overview, 413 where
        the text takes too much memory.
        """
        place = of.level, of.row, of.column

        def made(work: Work) -> Tensor:
            return atlases.tile(text, of.layer, of.head, place, work)

        return numbers(await answered(request, text, made))

    @routes.get("/tokens")
    async def tokens(
        request: Request, text: Annotated[str | None, named], part: Annotated[TokensQuery, Query()]
    ) -> dict[str, Any]:
        """Return the text of tokens, at most 512 at once; 413 as for the map."""
        end = min(part.stop, part.start + TOKENS)
        return await answered(
            request, text, lambda work: atlases.tokens(text, part.start, end, work)
        )

    return routes


# Characters of a list of token ids; translations are far shorter.
_LONGEST = 2**14
_Width = Annotated[int, Query(ge=WIDTHS[0], le=WIDTHS[-1])]
_Tokens = Annotated[str, Query(max_length=_LONGEST, pattern=r"^([0-9]{1,9}(,[0-9]{1,9})*)?$")]


def alignment_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `alignment`."""
    routes = APIRouter(prefix="/alignment", tags=["alignment"], responses=REFUSALS)
    words = has_a_word(words_of(studio.limits))
    query = Query(max_length=studio.limits.sentence, json_schema_extra=words)

    @routes.get("")
    async def candidates(
        request: Request, sentence: Annotated[str, query], beam: _Width = USUAL_WIDTH
    ) -> dict[str, Any]:
        """Return a sentence's words, and its translations by beam search, best first.

        400 or 413 where it has more tokens than the model reads, 404 where there is no translator.
        """
        return await run_job(
            request,
            lambda work: translations(
                studio.subject.translator(), sentence, studio.limits, beam, work
            ),
        )

    @routes.get("/weights", response_class=Response, responses=NUMBERS)
    async def cross_attention_weights(
        request: Request, sentence: Annotated[str, query], tokens: _Tokens
    ) -> Response:
        """Return the cross-attention weights [layers, heads, target, source] of a translation.

        400 where a token is out of range, 404 where there is no translator, 413 where there
        are more tokens than the model reads.
        """
        target = [int(token) for token in tokens.split(",") if token]
        return numbers(
            await run_job(
                request,
                lambda _: weights(studio.subject.translator(), sentence, target, studio.limits),
            )
        )

    return routes
