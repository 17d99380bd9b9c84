"""Job: a language model trained into a run folder."""

from glasshead.models import LanguageModel
from glasshead.tasks.runs import Job, Prepared
from glasshead.tasks.tokenizing import Tokenizer
from glasshead.tasks.write.corpus import Corpus, make_tokenizer, read_corpus, tokenized
from glasshead.tasks.write.next_token import NextToken
from glasshead.tasks.write.settings import WriteSettings
from glasshead.tasks.write.windows import HeldOutWindows, TrainingWindows


def prepare(
    settings: WriteSettings, corpus: Corpus, tokenizer: Tokenizer
) -> Prepared[WriteSettings]:
    """The untrained model, and the pieces of text that it is trained on.

    Errors: a ValueError where there is less text than the model's context.
    """
    config = settings.model_config(vocab_size=tokenizer.vocab_size)
    length = config.context_length
    training, held_out = (tokenized(tokenizer, x) for x in (corpus.training, corpus.held_out))
    for name, part, least in (("training", training, length + 1), ("held-out", held_out, 2)):
        if len(part.ids) < least:
            raise ValueError(
                f"the {name} part of the text takes at least {least} tokens, and has "
                f"{len(part.ids)}: give more text, or a smaller --set context_length."
            )
    return Prepared(
        settings=settings,
        config=config,
        task=NextToken(
            LanguageModel(config), held_out.characters, settings.training.label_smoothing
        ),
        source=TrainingWindows(
            training.ids, length, settings.data.batch_size, settings.training.seed
        ),
        held_out=HeldOutWindows(held_out.ids, length),
        about=f"{len(training.ids):,} tokens to train on, {len(held_out.ids):,} held out",
    )


WRITE = Job("A language model", WriteSettings, read_corpus, make_tokenizer, prepare, LanguageModel)
