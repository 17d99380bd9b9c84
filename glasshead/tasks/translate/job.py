"""Job: a translator trained into a run folder."""

from glasshead.models import Translator
from glasshead.tasks.runs import Job, Prepared
from glasshead.tasks.tokenizing import Tokenizer
from glasshead.tasks.translate.batches import PairBatches
from glasshead.tasks.translate.corpus import Corpus, make_tokenizer, read_corpus
from glasshead.tasks.translate.next_translated import NextTranslated
from glasshead.tasks.translate.settings import TranslateSettings


def prepare(
    settings: TranslateSettings, corpus: Corpus, tokenizer: Tokenizer
) -> Prepared[TranslateSettings]:
    """The untrained model, and the pairs that it is trained on.

    Errors: a ValueError where a text is longer than the model's context, or than a batch.
    """
    config = settings.model_config(vocab_size=tokenizer.vocab_size)
    tokens, seed = settings.data.batch_tokens, settings.training.seed
    source = PairBatches(tokenizer, corpus.training, tokens, seed)
    held_out = PairBatches(tokenizer, corpus.held_out, tokens)
    for part in (source, held_out):
        for name, room in (("context_length", config.context_length), ("batch_tokens", tokens)):
            if part.longest > room:
                raise ValueError(
                    f"{name} takes at least {part.longest}, the tokens of the longest text, and "
                    f"got {room}: set it higher, or leave that text out."
                )
    about = f"{len(corpus.training):,} pairs to train on, {len(corpus.held_out):,} held out"
    if corpus.empty:
        about += f", {corpus.empty:,} with an empty side left out"
    return Prepared(
        settings=settings,
        config=config,
        task=NextTranslated(Translator(config), settings.training.label_smoothing),
        source=source,
        held_out=held_out,
        about=about,
    )


TRANSLATE = Job("A translator", TranslateSettings, read_corpus, make_tokenizer, prepare, Translator)
