"""Job: a classifier trained into a run folder."""

from glasshead.models import Classifier
from glasshead.tasks.classify.batches import LabelledBatches
from glasshead.tasks.classify.corpus import Corpus, make_tokenizer, read_corpus
from glasshead.tasks.classify.right_answer import RightAnswer
from glasshead.tasks.classify.settings import ClassifySettings
from glasshead.tasks.runs import Job, Prepared
from glasshead.tasks.tokenizing import Tokenizer


def prepare(
    settings: ClassifySettings, corpus: Corpus, tokenizer: Tokenizer
) -> Prepared[ClassifySettings]:
    """The untrained model, and the texts that it is trained on.

    Errors: a ValueError where the texts that are read are longer than a batch, or than the model's
    context.
    """
    data = settings.data
    config = settings.model_config(vocab_size=tokenizer.vocab_size, num_answers=len(data.answers))
    read = data.first + data.last
    for name, room in (
        ("batch_tokens", data.batch_tokens),
        ("context_length", config.context_length),
    ):
        if read > room:
            raise ValueError(
                f"{name} takes at least first + last, which is {read}, and got {room}: set it "
                "higher, or first and last lower."
            )
    seed = settings.training.seed
    return Prepared(
        settings=settings,
        config=config,
        task=RightAnswer(Classifier(config), settings.training.label_smoothing),
        source=LabelledBatches(tokenizer, corpus.training, data, seed),
        held_out=LabelledBatches(tokenizer, corpus.held_out, data),
        about=f"{len(corpus.training):,} texts to train on, {len(corpus.held_out):,} held out, "
        f"labelled {' or '.join(data.answers)}",
    )


CLASSIFY = Job("A classifier", ClassifySettings, read_corpus, make_tokenizer, prepare, Classifier)
