"""Two checkpoints of training runs compared: what each head attends to, and the difference."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.drawing import visible
from glasshead.message import _
from glasshead.studio.background_jobs import Cache, Refusal, Work
from glasshead.studio.hidden_blocks import mark_hidden
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import Place, TextName
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass
from glasshead.studio.views.reading import held_by, run, tokens_of
from glasshead.studio.views.training_log import mark_of
from glasshead.studio.views.training_runs import SEPARATOR, TrainingRuns, runs_of
from glasshead.tasks.run_folder import RunFolder

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes
    from glasshead.tasks.readers.reader import Reader


WORDS = {
    "training.checkpoints": _("Compare two checkpoints"),
    "training.checkpoints.told": _(
        "Two checkpoints read the same text. The deeper a head's color, the more its attention "
        "differs between them: 0 means the same weights, 1 means that no key is shared."
    ),
    "training.checkpoints.none": _(
        "The comparison needs two checkpoints of models with the same tokens and the same heads."
    ),
    "training.checkpoint.first": _("Checkpoint A"),
    "training.checkpoint.second": _("Checkpoint B"),
    "training.best_of": _("{run}, best validation"),
    "training.last_of": _("{run}, last step"),
    "training.text": _("Text (its first 64 tokens are read)"),
    "training.moved": _("Change of each head (total variation)"),
    "training.difference": _("A − B"),
}


Which = Literal["best", "last"]

_TOKENS = 64
_MODELS = 4


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a run: the weights of its best validation, or those that it resumes from.

    Attributes:
        name: As in the address: the run's name, and "best" or "last".
        folder: The run folder.
        which: Which of the two.
    """

    name: str
    folder: Path
    which: Which

    @property
    def file(self) -> Path:
        """The file of its weights."""
        run = RunFolder(self.folder)
        return run.weights if self.which == "best" else run.checkpoint

    @property
    def repeats_best(self) -> bool:
        """Whether it is the last step, and also the best validation."""
        from glasshead.tasks.training import checkpoints

        run = RunFolder(self.folder)
        try:
            best = run.read_metrics()["best"]["step"]
            return self.which == "last" and checkpoints.step_of(run.checkpoint) == best
        except (OSError, ValueError, LookupError, TypeError):
            # Opening it says what is wrong.
            return False

    @property
    def kind(self) -> tuple[Any, ...]:
        """Its tokens and the counts of its model: checkpoints of one kind can be compared."""
        run = RunFolder(self.folder)
        try:
            config = run.read_config()
            tokens = run.tokenizer.read_bytes() if run.tokenizer.is_file() else b""
            counts = [pair for pair in config["model"].items() if pair[0].startswith("num_")]
            return config["task"], tokens, str(sorted(counts))
        except (OSError, ValueError, LookupError, AttributeError):
            # Opening it says what is wrong.
            return (self.folder,)

    def open(self) -> "Reader":
        """Load its model for reading texts.

        Errors: an OSError or ValueError in one sentence if it cannot be loaded.
        """
        from glasshead.tasks.readers.open_reader import open_any_reader
        from glasshead.tasks.training import checkpoints

        reader = open_any_reader(self.folder)
        if self.which == "last":
            weights = checkpoints.read(self.file)["model"]
            try:
                reader.model.load_state_dict(weights)
            except RuntimeError as error:
                raise Refusal(
                    "{file} does not fit the model of its run. Train the run again.",
                    file=self.file.name,
                ) from error
        return reader


class Comparisons:
    """Compares how two checkpoints read a text, head by head.

    Args:
        studio: The studio whose run is served.
        runs: That run, and the others whose checkpoints may be chosen.
    """

    def __init__(self, studio: Studio, runs: TrainingRuns) -> None:
        self._studio, self._runs = studio, runs
        self._readers: Cache[Reader] = Cache(_MODELS)

    def checkpoints(self) -> dict[str, Checkpoint]:
        """Return the checkpoints that are there, by name: those of the run served first.

        A last step that is also the best validation has the same weights, and is not listed.
        """
        folders = {self._runs.name: self._studio.subject.folder, **self._runs.offered()}
        found = (
            Checkpoint(f"{name}{SEPARATOR}{which}", folder, which)
            for name, folder in folders.items()
            if folder is not None and RunFolder(folder).weights.is_file()
            for which in ("best", "last")
        )
        return {one.name: one for one in found if one.file.is_file() and not one.repeats_best}

    def summary(self, text: str, first: str, second: str, work: Work) -> dict[str, Any]:
        """Compare two checkpoints: tokens, layers, and how far each head's attention has moved.

            d = Σ_i ½ Σ_j |p_ij − q_ij| / n

        `distance` is the total variation distance d of a head's weights p and q, in the mean over
        the n queries: 0 if both attend alike, 1 if they share no key.

        Args:
            text: The name of a text that was sent, of which the first 64 tokens are read.
            first: Name of the checkpoint that has p.
            second: Name of the checkpoint that has q.
            work: Receives progress.

        Errors: a `Refusal` if there is no such checkpoint or text, or the two do not read the
        same tokens by the same heads; a ValueError if one cannot be loaded; `Cancelled`.
        """
        one, other = self._both(text, first, second, work)
        pairs = [(_dense(one, layer), _dense(other, layer)) for layer in range(len(one.layers))]
        distances = [(p - q).abs().sum(-1).mean(-1).mul(0.5).tolist() for p, q in pairs]
        return {
            "tokens": [visible(word) for word in one.words],
            "of": one.of,
            "layers": list(one.layers),
            "distance": distances,
        }

    def maps(
        self, text: str, first: str, second: str, layer: int, head: int, work: Work
    ) -> Float[Tensor, "3 length length"]:
        """Return the weights of a head in two checkpoints, and the first's less the second's.

        Hidden pairs have −0 in all three.

        Errors: as of `summary`, and a `Refusal` if there is no such layer or head.
        """
        one, other = self._both(text, first, second, work)
        weights, every = one.head(layer, head), range(one.length)
        p, q = weights.dense(), other.head(layer, head).dense()
        return torch.stack([mark_hidden(each, weights, every, every) for each in (p, q, p - q)])

    def _both(self, text: str, first: str, second: str, work: Work) -> tuple[ModelPass, ModelPass]:
        one, other = (self._read(text, name, work) for name in (first, second))
        if one.words != other.words or one.layers != other.layers or one.heads != other.heads:
            raise Refusal(
                "{first} and {second} must have the same tokens and the same heads. Choose two "
                "checkpoints of the same kind of model.",
                first=first,
                second=second,
            )
        return one, other

    def _read(self, text: str, name: str, work: Work) -> ModelPass:
        checkpoint = self.checkpoints().get(name)
        if checkpoint is None:
            raise Refusal("the run has no checkpoint {name}.", name=name)
        key = ("checkpoint", name, mark_of(checkpoint.file), text)
        return self._studio.readings.get(
            key, lambda: self._passed(text, checkpoint, work), work.follow, work
        )

    def _passed(self, text: str, checkpoint: Checkpoint, work: Work) -> ModelPass:
        known = f"{checkpoint.name} {mark_of(checkpoint.file)}"
        reader = self._readers.find(known)
        if reader is None:
            reader = checkpoint.open()
            self._readers.put(known, reader)
        numbers, of = tokens_of(reader, self._studio.texts[text], _TOKENS)
        tokens = torch.tensor(numbers)
        seen = run(reader, tokens, (), budget=self._studio.limits.memory, work=work)
        words = tuple(reader.token(number) for number in numbers)
        return ModelPass(tokens, words, of, seen, held_by(seen))


def _dense(reading: ModelPass, layer: int) -> Float[Tensor, "heads length length"]:
    return reading.weights(layer).dense().flatten(0, -3)


_Name = Annotated[str, {"max_length": 200}]


def _add_routes(routes: "Routes") -> None:
    studio = routes.studio
    comparisons = Comparisons(studio, runs_of(studio))

    @routes.at_once("/checkpoints")
    def checkpoints() -> list[list[str]]:
        """Return the names of the checkpoints, as "run/best" or "run/last".

        Those of a list can be compared.
        """
        studio.subject.check_run()
        kinds: dict[tuple[Any, ...], list[str]] = {}
        for name, checkpoint in comparisons.checkpoints().items():
            kinds.setdefault(checkpoint.kind, []).append(name)
        return [*kinds.values()]

    @routes.json("/comparison")
    def comparison(work: Work, text: TextName, first: _Name, second: _Name) -> dict[str, Any]:
        """Return how far each head's attention has moved between two checkpoints.

        400 if there is no such checkpoint, or the two are of models of other shapes.
        """
        return comparisons.summary(text, first, second, work)

    @routes.numbers("/comparison/maps")
    def maps(
        work: Work, text: TextName, first: _Name, second: _Name, layer: Place, head: Place
    ) -> Tensor:
        """Return a head's weights in two checkpoints and their difference, [3, queries, keys].

        400 as for the comparison, and if there is no such head.
        """
        return comparisons.maps(text, first, second, layer, head, work)


PANEL = Panel(words=WORDS, routes=_add_routes)
