"""The studio as a page without a server: the worked example and the story model in the browser."""

import base64
import json
from dataclasses import asdict
from typing import Any

from glasshead.explanation.embeddings import Projection
from glasshead.explanation.explanation import json_ready
from glasshead.explanation.settings import Setting
from glasshead.ladder.worked_example import (
    EXAMPLES,
    HELLO_SHINY_SUN,
    JOURNEY,
    WorkedExample,
    text_of,
    worked_example,
)
from glasshead.studio.background_jobs import Work
from glasshead.studio.page import document, icon
from glasshead.studio.shell import LANGUAGES, about, words
from glasshead.studio.stored_answers import StoredAnswers, in_a_script
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.tour import built_in
from glasshead.studio.views.heads_compared import InductionTests
from glasshead.studio.views.prompt import Prompts
from glasshead.studio.views.steps_request import (
    BETAS,
    MASKS,
    STEPS_NORMALIZERS,
    StepsRequest,
    controls,
    normalizers,
    sums,
)
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.story_model import FOLDER

VIEWS = ("prompt", "steps", "heads")
"""The views that the page has."""


def live_page(lang: str = "en") -> str:
    """Return the page as self-contained HTML, which asks nothing of the network.

    Args:
        lang: Language code of the document; the page has all languages.
    """
    studio = Studio(FOLDER)
    answers = StoredAnswers()
    answers.hold("about", {}, _about(studio))
    answers.hold("tour", {}, built_in())
    for language in LANGUAGES:
        answers.hold("words", {"lang": language}, words(language))
    answers.hold("heads/roles", {}, InductionTests(studio).roles(0, Work()))
    _hold_first(answers, studio)
    spoken = words(lang)
    return document(
        answers.json(spoken["report.missing"], example=example_tables(studio.limits)),
        "glasshead",
        lang,
        spoken["report.noscript"],
        script="live.js",
        story=in_a_script(story(studio)),
    )


def _about(studio: Studio) -> dict[str, Any]:
    description = about(studio)
    return {
        **description,
        "subject": {**description["subject"], "path": None},
        "views": {name: description["views"][name] for name in VIEWS},
        "icon": icon(),
    }


def _hold_first(answers: StoredAnswers, studio: Studio) -> None:
    """Hold what the page shows first, before its model has arrived."""
    text = (sample := studio.subject.sample()).text
    answers.hold("sample", {}, asdict(sample))
    prompts, work = Prompts(studio), Work()
    told = prompts.predictions(text, (), 10, 1.0, work)
    layer, head = told["first"]
    shown = {"text": text, "heads": f"{layer}.{head}"}
    answers.hold("prompt", {"text": text}, told)
    answers.hold("prompt/maps", {"text": text}, prompts.maps(text, (), work))
    answers.hold("prompt/weights", shown, prompts.weights(text, (), [(layer, head)], work))


def story(studio: Studio) -> dict[str, Any]:
    """Return the story model as the page runs it: its config, its tokenizer and its weights."""
    run = RunFolder(FOLDER)
    tokenizer = json.loads(run.tokenizer.read_text(encoding="utf-8"))
    blocks: Any = studio.subject.reader().model.blocks
    return {
        "config": run.read_config()["model"],
        "vocabulary": tokenizer["model"]["vocab"],
        "merges": tokenizer["model"]["merges"],
        "layers": [f"blocks.{layer}.attention" for layer in range(len(blocks))],
        "masks": [repr(block.attention.attention.mask) for block in blocks],
        "weights": base64.b64encode(run.weights.read_bytes()).decode(),
    }


def example_tables(limits: Limits) -> dict[str, Any]:
    """Return the worked examples of all tutorials, and what the view "steps" offers and says."""
    plain, projected = (
        sums(StepsRequest(), 1.0, "softmax", projected=projected) for projected in (False, True)
    )
    by_mask = {mask: sums(StepsRequest(mask=mask), 1.0, "softmax") for mask in MASKS}
    numbers = {each.name: [*Setting.of(each).numbers] for each in controls()}
    return {
        "examples": [HELLO_SHINY_SUN.text, JOURNEY.text],
        "works": [_work("shiny", HELLO_SHINY_SUN.text), _work("journey", JOURNEY.text)],
        "betas": BETAS,
        "masks": MASKS,
        "normalizers": normalizers(),
        "limits": {
            "sentence": limits.sentence,
            "words": limits.words,
            "decimals": numbers["decimals"],
        },
        "sums": {"plain": plain, "projected": projected},
        "masked": {
            mask: {name: own[name] for name in ("masked", "masked.hidden")}
            for mask, own in by_mask.items()
        },
        "weighed": {one: sums(StepsRequest(), 1.0, one)["weights"] for one in STEPS_NORMALIZERS},
    }


def _work(name: str, text: str) -> dict[str, Any]:
    """Return a worked example by the letter of its tutorial, and by its mask."""
    masks = {"none": False, "causal": True}
    return {
        "text": text.removesuffix("!"),
        "first": text_of(name, None),
        "sources": {
            letter: {
                mask: _worked(worked_example(name, letter, causal=causal))
                for mask, causal in masks.items()
            }
            for letter in EXAMPLES[name]
        },
    }


def _worked(example: WorkedExample) -> dict[str, Any]:
    projection = Projection.of_the_texts(example)
    return {
        "words": example.tokens,
        "query": example.position,
        "beta": "auto" if example.score == "scaled-dot" else "1",
        "x": example.embeddings,
        "projection": None
        if projection is None
        else {
            "queries": json_ready(projection.W_query),
            "keys": json_ready(projection.W_key),
            "values": json_ready(projection.W_value),
        },
    }
