"""The routes under `/api`: what each view asks for, and the parameters that it takes."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response
from torch import Tensor

from glasshead.explanation.language import LANGUAGES
from glasshead.studio.server.answers import (
    LINES,
    NUMBERS,
    REFUSALS,
    Job,
    Streamed,
    numbers,
    waited_for,
    waited_for_reading,
)
from glasshead.studio.strings import words
from glasshead.studio.studio import Limits, Studio, about
from glasshead.studio.views import heads as view
from glasshead.studio.views.alignment import USUAL_WIDTH, WIDTHS, translations, weights
from glasshead.studio.views.atlas import TOKENS, Atlases
from glasshead.studio.views.reading import ModelPass, is_read
from glasshead.studio.views.steps import steps_data, steps_words
from glasshead.studio.views.steps_request import Beta, Mask, Normalizer, StepsAsked
from glasshead.studio.views.training import TrainingLog
from glasshead.studio.work import NotThere

# What Python takes for space: some of it `\s` leaves out elsewhere.
_SPACE = r"\s\x1c-\x1f\x85"
# What a text has that is to be read.
HAS_A_WORD = f"[^{_SPACE}]"
# What a sentence has that is split into words and marks, which no blank of width 0 is.
HAS_A_SIGN = f"[^{_SPACE}\u200b\ufeff]"

NAME = r"^[0-9A-Za-z]{1,64}$"
"""How a text is named."""

_NAMED = "The name of a text, as it was given when the text was sent."
TextName = Annotated[str, Query(pattern=NAME, description=_NAMED)]
TextInPath = Annotated[str, Path(pattern=NAME, description=_NAMED)]


def _language_codes() -> str:
    """The pattern of the codes that are read as one of the languages, whatever their case.

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
    """The pattern of a sentence that has a word, and no more than are taken."""
    word, space = f"[^{_SPACE}]+", f"[{_SPACE}]"
    return rf"^{space}*({word}{space}+){{0,{limits.words - 1}}}{word}{space}*$"


def has_a_word(pattern: str) -> dict[str, Any]:
    """What a schema says of a sentence; without a word it is refused in the library's own words."""
    return {"minLength": 1, "pattern": pattern}


def shell_routes(studio: Studio) -> APIRouter:
    """What all views share."""
    routes = APIRouter(tags=["shell"], responses=REFUSALS)
    # A character takes a byte at least; the bytes are counted when the text is there.
    described = {**has_a_word(HAS_A_WORD), "maxLength": studio.limits.text}

    @routes.get("/about")
    def told() -> dict[str, Any]:
        """What is open, which views there are of it, limits, languages and colours."""
        return about(studio)

    @routes.get("/health")
    def health() -> dict[str, str]:
        """That the studio is there, and which start of it this is."""
        return {"id": studio.id}

    @routes.get("/words")
    def spoken(lang: Language = "en") -> dict[str, str]:
        """The page's own words in a language, one of en, tr, es, zh-Hant, zh-Hans."""
        return words(lang)

    @routes.post("/texts")
    def sent(
        text: Annotated[str, Body(embed=True, json_schema_extra=described)],
    ) -> dict[str, str]:
        """Remember a text; views name it by what is given back.

        413 where it has more bytes than are taken, of which a character may have four.
        """
        return {"id": studio.texts.add(text)}

    @routes.get("/texts/{name}")
    def text(name: TextInPath) -> dict[str, str]:
        """A text that is remembered; 410 where it is not, or no longer."""
        return {"text": studio.texts[name]}

    return routes


def steps_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/steps", tags=["steps"], responses=REFUSALS)
    asked_of = _asked_of(studio.limits)

    @routes.get("")
    def matrices(asked: Annotated[StepsAsked, Depends(asked_of)]) -> dict[str, Any]:
        """The matrices of a sentence's attention with every digit, and what else can be chosen.

        400 where parameters do not fit each other: heads that do not divide the vectors, a head
        beyond them, or β = ∞ of a normalizer that never becomes hard. 413 where the sentence has
        too many words and marks.
        """
        return steps_data(asked, studio.limits)

    @routes.get("/words")
    def told(
        asked: Annotated[StepsAsked, Depends(asked_of)], lang: Language = "en"
    ) -> dict[str, Any]:
        """What is said of one word's attention, step by step, in one of five languages.

        400 and 413 as of the matrices, and 400 where the sentence has no word at `query`.
        """
        return steps_words(asked, lang, studio.limits)

    return routes


def _asked_of(limits: Limits) -> Callable[..., StepsAsked]:
    """What reads the choices of a request."""

    def asked(
        text: Annotated[
            str | None,
            Query(max_length=limits.sentence, json_schema_extra=has_a_word(HAS_A_SIGN)),
        ] = None,
        beta: Beta | None = None,
        mask: Mask = "none",
        normalizer: Normalizer = "softmax",
        heads: Annotated[int, Query(ge=1, le=4)] = 1,
        head: Annotated[int, Query(ge=0, le=3)] = 0,
        query: Annotated[int | None, Query(ge=0, lt=limits.words)] = None,
    ) -> StepsAsked:
        return StepsAsked(
            text=text,
            beta=beta,
            mask=mask,
            normalizer=normalizer,
            heads=heads,
            head=head,
            query=query,
        )

    return asked


Layer = Annotated[int, Query(ge=0, le=2**16, description="Counted from 0.")]
Head = Annotated[int, Query(ge=0, le=2**16, description="Counted from 0.")]


def heads_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/heads", tags=["heads"], responses=REFUSALS)

    async def read(request: Request, text: str, told: Callable[[ModelPass], Tensor]) -> Response:
        return numbers(
            await waited_for_reading(
                request,
                lambda: view.is_there(studio, text),
                lambda work: told(view.reading_of(studio, text, work)),
            )
        )

    @routes.get("/reading", response_class=Response, responses=LINES)
    def reading(text: TextName) -> Response:
        """Let the model read a text: tokens, layers, heads, their roles and mean entropies."""
        return Streamed(
            studio, lambda work: view.summary(view.reading_of(studio, text, work), work)
        )

    @routes.get("/maps", response_class=Response, responses=NUMBERS)
    async def maps(request: Request, text: TextName) -> Response:
        """The small maps of all heads, and in one more column the weight of the first token.

        413 where the text takes too much memory.
        """
        return await read(request, text, view.small_maps)

    @routes.get("/weights", response_class=Response, responses=NUMBERS)
    async def weights(request: Request, text: TextName, layer: Layer, head: Head) -> Response:
        """The weights of one head, a row a query, a column a key.

        400 where there is no such layer or head, 413 where the text takes too much memory.
        """
        return await read(request, text, lambda one: view.whole_map(one, layer, head))

    @routes.get("/along", response_class=Response, responses=NUMBERS)
    async def along(request: Request, text: TextName, layer: Layer, head: Head) -> Response:
        """Of one head: each query's entropy and mean distance, the mass that each key receives.

        400 where there is no such layer or head, 413 where the text takes too much memory.
        """
        return await read(request, text, lambda one: view.along(one, layer, head))

    return routes


_MANY = 2**31 - 1
Number = Annotated[int, Query(ge=0, le=_MANY)]
Level = Annotated[int, Query(ge=0, le=31, description="Of blocks of 2^level tokens.")]


def _one_text(text: TextName) -> str:
    return text


def _no_text_or_one(
    text: Annotated[
        str | None, Query(pattern=NAME, description="Stored weights are of no text that is named.")
    ] = None,
) -> str | None:
    return text


def atlas_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/atlas", tags=["atlas"], responses=REFUSALS)
    atlases = Atlases(studio)
    named = _no_text_or_one if studio.subject.is_file else _one_text

    async def answered(request: Request, text: str | None, job: Job) -> Any:
        return await waited_for_reading(
            request, lambda: text is None or is_read(studio, text, studio.limits.atlas), job
        )

    @routes.get("/read", response_class=Response, responses=LINES)
    def read(text: Annotated[str | None, Depends(named)]) -> Response:
        """Read a text, as progress and then how long it is and which layers and heads there are."""
        return Streamed(studio, lambda work: atlases.opened(text, work))

    @routes.get("/map")
    async def size(
        request: Request,
        layer: Number,
        head: Number,
        text: Annotated[str | None, Depends(named)],
    ) -> dict[str, Any]:
        """The size of a head's map, and its levels.

        400 where there is no such layer or head, 413 where the text takes too much memory.
        """
        return await answered(request, text, lambda work: atlases.map(text, layer, head, work))

    @routes.get("/overview", response_class=Response, responses=LINES)
    def overview(
        layer: Number, head: Number, text: Annotated[str | None, Depends(named)]
    ) -> Response:
        """Go through a head's whole matrix, as progress and then that it is done."""
        return Streamed(studio, lambda work: atlases.overview(text, layer, head, work))

    @routes.get("/tile", response_class=Response, responses=NUMBERS)
    async def tile(
        request: Request,
        layer: Number,
        head: Number,
        level: Level,
        row: Number,
        column: Number,
        text: Annotated[str | None, Depends(named)],
    ) -> Response:
        """256 × 256 blocks at most: sums over a block's keys, means over its queries.

        400 where there is no such layer, head or tile, 409 where it takes the overview, 413 where
        the text takes too much memory.
        """
        place = level, row, column
        return numbers(
            await answered(request, text, lambda work: atlases.tile(text, layer, head, place, work))
        )

    @routes.get("/tokens")
    async def tokens(
        request: Request,
        start: Number,
        stop: Number,
        text: Annotated[str | None, Depends(named)],
    ) -> dict[str, Any]:
        """How tokens of a text are written, at most 512 at once; 413 as of the map."""
        end = min(stop, start + TOKENS)
        return await answered(request, text, lambda work: atlases.tokens(text, start, end, work))

    return routes


# Of tokens, as numbers; a translation has far fewer.
_LONGEST = 2**14
_Width = Annotated[int, Query(ge=WIDTHS[0], le=WIDTHS[-1])]
_Tokens = Annotated[str, Query(max_length=_LONGEST, pattern=r"^([0-9]{1,9}(,[0-9]{1,9})*)?$")]


def alignment_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/alignment", tags=["alignment"], responses=REFUSALS)
    words = has_a_word(words_of(studio.limits))
    query = Query(max_length=studio.limits.sentence, json_schema_extra=words)

    @routes.get("")
    async def candidates(
        request: Request, sentence: Annotated[str, query], beam: _Width = USUAL_WIDTH
    ) -> dict[str, Any]:
        """The words of a sentence, and the translations that a beam finds, the best first.

        400 or 413 where it has more tokens than the model reads, 404 where there is no translator.
        """
        return await waited_for(
            request,
            lambda work: translations(
                studio.subject.translator(), sentence, studio.limits, beam, work
            ),
        )

    @routes.get("/weights", response_class=Response, responses=NUMBERS)
    async def looked_at(
        request: Request, sentence: Annotated[str, query], tokens: _Tokens
    ) -> Response:
        """Float32 [layers, heads, target, source]: what each word of a translation took.

        400 where a token is none of the model's, 404 where there is no translator, 413 where there
        are more tokens than the model reads.
        """
        written = [int(token) for token in tokens.split(",") if token]
        return numbers(
            await waited_for(
                request,
                lambda _: weights(studio.subject.translator(), sentence, written, studio.limits),
            )
        )

    return routes


def training_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/training", tags=["training"], responses=REFUSALS)
    folder = studio.subject.folder
    log = None if folder is None else TrainingLog(folder)

    @routes.get("")
    def training(
        version: Annotated[str | None, Query(max_length=64)] = None,
        smoothing: Annotated[float, Query(ge=0, le=0.999)] = 0.0,
    ) -> dict[str, Any]:
        """How far the training of the run is: its curves, what its heads do, and the alarms.

        Where nothing has changed since `version`, `changed` is false and all else is left out.
        """
        if log is None:
            raise NotThere("there is no run here: start the studio with the folder of one.")
        return log.told(version, smoothing)

    return routes
