"""Evaluating: how near translations come to those of people."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from glasshead.models.decoding import Strategy
from glasshead.tasks.translate.job import TRANSLATE
from glasshead.tasks.translate.parallel import Pairs, place_of, read_pairs
from glasshead.tasks.translate.text_translator import SEARCH, TextTranslator, Translation


@dataclass(frozen=True)
class Evaluation:
    """How well a translator does.

    Attributes:
        bleu: BLEU, 0 to 100.
        bleu_signature: How sacreBLEU counted it.
        chrf: chrF, 0 to 100.
        chrf_signature: How sacreBLEU counted that.
        exact: The share of translations that are just as expected.
        texts: How many there were.
        translations: What the model made of each text.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float
    texts: int
    translations: tuple[Translation, ...]


def evaluate(
    translator: TextTranslator,
    files: Sequence[str] = (),
    strategy: Strategy = SEARCH,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """BLEU and chrF, as sacreBLEU counts them; over files, or over what was held out.

    A model of small letters is compared in small letters, as the signatures say (`case:lc`).

    Args:
        translator: What is evaluated.
        files: Texts and their translations, as for training; none: those that the run held out.
        strategy: How translations are searched for.
        progress: Is told how many texts are done, and of how many.

    Errors: an OSError or ValueError where a file cannot be read, or a text is longer than what the
    model reads; a ValueError where what was held out is not there any more.

    Source: Papineni et al. 2002 (BLEU); Popović 2015 (chrF); Post 2018 (a call for clarity in
    reporting BLEU scores), section 3, for the signatures.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    lowercase = translator.settings.data.lowercase
    pairs = _pairs(translator, files)
    name = partial(place_of, files) if files else "text {}".format
    translations = translator.translate([text for text, _ in pairs], strategy, progress, name)
    expected = [text.lower() if lowercase else text for _, text in pairs]
    written = [translation.text for translation in translations]
    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    scores = [metric.corpus_score(written, [expected]).score for metric in (bleu, chrf)]
    return Evaluation(
        bleu=scores[0],
        bleu_signature=str(bleu.get_signature()),
        chrf=scores[1],
        chrf_signature=str(chrf.get_signature()),
        exact=sum(map(str.__eq__, written, expected)) / len(pairs),
        texts=len(pairs),
        translations=tuple(translations),
    )


def _pairs(translator: TextTranslator, files: Sequence[str]) -> Pairs:
    data = translator.settings.data
    if files:
        return read_pairs(files, data.source, data.target)
    return TRANSLATE.held_out(data, remedy="name files")
