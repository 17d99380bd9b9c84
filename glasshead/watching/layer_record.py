"""The recorded calls of one attention of a model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.attention.joined_weights import JoinedWeights
from glasshead.attention.lazy_matrix import first_head
from glasshead.attention.observe import value_table
from glasshead.attention.weight_gradients import WeightGradients
from glasshead.attention.weights import Weights
from glasshead.recipe.problem import Trace
from glasshead.recipe.validation import UnfitError
from glasshead.watching.attention_map import (
    AttentionMap,
    MapChoice,
    Place,
    attention_map,
    placed,
    tokens_of,
)
from glasshead.watching.recorded_call import Call, CallInfo, check_places
from glasshead.watching.texts import (
    check_rows,
    followed,
    texts_of,
    whole,
    without_rejected,
)


class Watched(Sequence[Call]):
    """The calls of one attention, in order, and their joined statistics.

    `seen["layer"].entropy` is that of the last text: of its only call, or, where the text grew with
    a cache, of all its calls joined, the prefill first. `seen["layer"][i]` is one call, and `texts`
    lists all texts.

    A module that runs several times in one forward pass, as where layers share weights, or attends
    several times in one call, as a differential transformer does, counts as one layer per run: see
    `runs`.

    Args:
        name: Name of the module; of a run `name#run`.
        calls: Its calls, or what makes them when they are read; a watch adds to the list.
        settle: Computes the statistics that calls wait for; None: none waits.
        kind: What a layer computes that was not observed, the name of its class.

    >>> import torch
    >>> import glasshead as gh
    >>> model = gh.LanguageModel(gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3))
    >>> cache = model.new_cache()
    >>> with gh.watch(model, [gh.Entropy()]) as seen:
    ...     logits = model(torch.tensor([[3, 1, 4, 1]]), cache=cache)
    ...     logits = model(torch.tensor([[5]]), cache=cache)
    >>> watched = seen["blocks.0.attention"]
    >>> watched.entropy.shape, watched[1].entropy.shape, watched[1].position
    (torch.Size([1, 3, 5]), torch.Size([1, 3, 1]), 4)
    >>> len(watched.texts), watched.prefill.queries, len(watched.steps)
    (1, 4, 1)
    """

    def __init__(
        self,
        name: str,
        calls: Sequence[Call | Callable[[], Call]] = (),
        settle: Callable[[], None] | None = None,
        kind: str | None = None,
    ) -> None:
        self.name, self._kind = name, kind
        self._made: list[Any] = calls if isinstance(calls, list) else [*calls]
        self._known = 0
        self._settle = settle
        self._together: dict[str, Any] = {}

    @property
    def _calls(self) -> list[Call]:
        if self._settle is not None:
            self._settle()
        return self._read()

    def _read(self) -> list[Call]:
        """Return the calls, of which some statistics may still wait to be computed."""
        made, many = self._made, len(self._made)
        if self._known < many:
            for place in range(self._known, many):
                # Another thread may read, too.
                if not isinstance(one := made[place], Call):
                    made[place] = one()
            self._known, self._together = many, {}
        return made

    def __getstate__(self) -> dict[str, Any]:
        # A copy has what was seen so far.
        return {**vars(self), "_made": [*self._calls], "_settle": None}

    @property
    def observed(self) -> bool:
        """Whether it was observed; False for a layer that `Seen.layers` only lists."""
        return bool(self._made)

    @property
    def kind(self) -> str:
        """Kind of the layer: "attention", the kind of a mixer, or the class of one not observed."""
        return self._kind or self._calls[-1].kind

    def crop(self, text: tuple[int, ...], left: int) -> None:
        """Record that a text has lost its last tokens, and how many are left."""
        made = self._read()
        last = next((call for call in reversed(made) if call.text == text), None)
        if last is not None:
            made[made.index(last)] = last.stopped(left)
            self._together = {}

    @property
    def runs(self) -> list["Watched"]:
        """Each run of the module in a forward pass as a layer of its own; itself if there is one.

        >>> import torch
        >>> import glasshead as gh
        >>> class Shared(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.layer = gh.MultiHeadAttention(6, 2)
        ...     def forward(self, x):
        ...         return self.layer(self.layer(x))
        >>> model = Shared()
        >>> with gh.watch(model, [gh.Entropy()]) as seen:
        ...     output = model(torch.randn(1, 5, 6))
        >>> [run.name for run in seen["layer"].runs]
        ['layer#0', 'layer#1']
        """
        numbers = sorted({call.run for call in self._calls})
        if len(numbers) < 2:
            return [self]
        return [
            Watched(f"{self.name}#{run}", [call for call in self._calls if call.run == run])
            for run in numbers
        ]

    @property
    def texts(self) -> list[list[Call]]:
        """The calls of each text, the one that was read last at the end.

        A call continues a text because it was given the same cache, or the same keys without one.
        For a module that runs several times in a forward pass, the texts are grouped by run.
        """
        runs = self.runs
        if len(runs) > 1:
            return [text for run in runs for text in run.texts]
        return texts_of(self._calls)

    @property
    def prefill(self) -> Call:
        """The first call of the last text.

        Errors: a ValueError if the module runs several times in a forward pass.
        """
        return self._last_calls[0]

    @property
    def steps(self) -> list[Call]:
        """The calls of the last text after the prefill, such as the decoding steps.

        Errors: a ValueError if the module runs several times in a forward pass.
        """
        return self._last_calls[1:]

    @property
    def joined(self) -> Call:
        """The calls of the last text, joined.

        Errors: a ValueError if a statistic of the whole does not follow from its parts, or the
        module runs several times in a forward pass.
        """
        return _sum(self.last_text)

    @property
    def weights(self) -> Weights | JoinedWeights:
        """The lazy matrix of the last text, over all of its calls; of a mixer, `ImpliedWeights`.

        Errors: a ValueError if they were not kept, or the module runs several times in a
        forward pass.
        """
        calls = self.last_text
        kept = [call.weights for call in calls if call.weights is not None]
        if len(kept) < len(calls):
            untold = next((call.untold for call in calls if call.untold is not None), None)
            if untold is not None:
                raise ValueError(f"the weights of {self.name!r} have no keys, as {untold}.")
            raise ValueError(
                f"the weights of {self.name!r} were not kept. Watch with keep='weights'."
            )
        if len(calls) == 1:
            return kept[0]
        check_places("weights", calls)
        return JoinedWeights(kept, [call.first_key for call in calls])

    @property
    def by_hand(self) -> str | None:
        """The steps of the last call, in words; None if it was left to a function."""
        return self._calls[-1].by_hand if self._calls else None

    @property
    def trace(self) -> Trace:
        """Every step of the last call of the last text, for `gh.explain`.

        Errors: a ValueError if it was not kept, or the module runs several times in a forward
        pass.
        """
        trace = self._last_calls[-1].trace
        if trace is None:
            raise ValueError(f"the steps of {self.name!r} were not kept. Watch with keep='trace'.")
        return trace

    def image(
        self,
        query: Place | Sequence[Place] | None = None,
        *,
        heads: Sequence[int] | None = None,
        batch: int = 0,
        image: int = 0,
        grid: tuple[int, int] | None = None,
        without: str | Sequence[int | str] = (),
        sinks: float | None = None,
    ) -> AttentionMap:
        """Compute the weights of a query on the patches of a picture, in the last text.

        w_j = mean_heads P_ij at the patch of key j, from row i of the lazy weights; of all queries
        their mean, from `P.T @ 1/n`. Memory grows with queries + keys.

        Patches are found by what the model was given: `pixel_values`, of a vision transformer, a
        feature map, or windows; in a language model the image tokens of its texts.

        Args:
            query: A number, negative from the end, (row, column) of a patch, or a list, of which
                the mean is taken; None: the mean of all.
            heads: Heads to average; None: all.
            batch: The number of the text or picture in the batch.
            image: The number of the picture, where a text has several.
            grid: Rows and columns of patches, if they are not known: they are the last keys, row
                by row.
            without: Keys to remove, by number, or by what they are, such as "class", "registers"
                or "text". The other weights are scaled to sum to 1.
            sinks: Also remove keys that receive more than this of the weight of the mean query,
                such as 0.3 (Gu et al. 2025, When attention sink emerges, section 3).

        Errors: a TypeError or ValueError if an argument is invalid, the weights were not kept or
        the patches are not known.
        """
        if grid is None and isinstance(self._calls[-1].images, str):
            # This says more of the calls of a picture than that they are several.
            tokens_of(self.name, self._calls[-1:], batch, image, grid)
        check_whole(self.name, self.last_text, "image")
        W, text = self.weights, self.last_text
        tokens = tokens_of(self.name, text, batch, image, grid)
        choice = MapChoice(query, heads, batch, image, without, sinks)
        real = self.real
        own = None if real is None or batch >= len(real) else real[batch]
        return attention_map(self.name, W, tokens, choice, own, crossing=text[0].crossing)

    def on_image(
        self,
        values: Float[Tensor, " keys"],
        *,
        batch: int = 0,
        image: int = 0,
        grid: tuple[int, int] | None = None,
        title: str | None = None,
    ) -> AttentionMap:
        """Place a number for each key, such as a row of `gh.rollout`, on the patches of a picture.

        Args:
            values: A number for each key; in windows they follow one another.
            batch, image, grid: As of `image`.
            title: The title; None: the name of the attention.

        Errors: a TypeError or ValueError if an argument is invalid or the patches are not known.

        >>> import torch
        >>> import glasshead as gh
        >>> rule, x = gh.Attention(), torch.zeros(1, 2, 5, 3)     # a class token and 2 × 2 patches
        >>> with gh.watch(rule, keep="weights") as seen:
        ...     context = rule(x, x, x)
        >>> seen[""].on_image(gh.rollout(seen, rows=[0])[0, 0], grid=(2, 2)).weights
        tensor([[0.1000, 0.1000],
                [0.1000, 0.1000]])
        """
        text = self.last_text
        tokens = tokens_of(self.name, text, batch, image, grid)
        keys = text[-1].keys * tokens.windows
        if not isinstance(values, Tensor) or values.shape != (keys,):
            got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"on_image needs a number for each of {keys} keys, got {got}.")
        return placed(values.detach(), tokens, title=title or self.name or "the model")

    @property
    def gradients(self) -> WeightGradients:
        """The lazy gradients of the loss with respect to the weights of the last text.

        >>> import torch
        >>> import glasshead as gh
        >>> rule, x = gh.Attention(), torch.eye(2).expand(1, 1, 2, 2).clone().requires_grad_()
        >>> with gh.watch(rule, keep="gradients") as seen:
        ...     rule(0 * x, x, x)[..., 0, 1].sum().backward()
        >>> seen[""].gradients.dense()                 # of context 0, its second number, by weights
        tensor([[[[0., 1.],
                  [0., 0.]]]])
        >>> (seen[""].weights * seen[""].gradients).dense()         # attention × gradient
        tensor([[[[0.0000, 0.5000],
                  [0.0000, 0.0000]]]])

        Errors: a ValueError if they were not kept, no backward pass has reached them, or the
        text has several calls or the module several runs in a forward pass.
        """
        calls = self.last_text
        if len(calls) > 1:
            raise ValueError(
                f"gradients are gradients of one call, but the last text of {self.name!r} has "
                f"{len(calls)}. Use seen[{self.name!r}][i].gradients, or run the text at once."
            )
        return calls[0].gradients

    @property
    def context(self) -> Float[Tensor, "*batch heads queries value_dim"]:
        """The output of the heads over the last text, before the output projection.

        Errors: a ValueError if it was not kept, or the module runs several times in a forward
        pass.
        """
        kept = [call.context for call in self.last_text if call.context is not None]
        if len(kept) < len(self.last_text):
            raise ValueError(
                f"the context of {self.name!r} was not kept. Watch with keep='context'."
            )
        return torch.cat(kept, -2)

    @property
    def real(self) -> Bool[Tensor, "batch tokens"] | None:
        """The real tokens of the last text; None if all are, or the padding is unknown.

        Errors: a ValueError if the module runs several times in a forward pass.
        """
        calls = self.last_text
        known = next((call.real for call in calls if call.real is not None), None)
        if known is None:
            return None
        ones = (known.new_ones(len(known), call.queries) for call in calls)
        masks = [call.real for call in calls]
        return torch.cat([o if m is None else m for m, o in zip(masks, ones, strict=True)], -1)

    @property
    def last_text(self) -> list[Call]:
        """The calls of the last text, without tokens that were rejected after they were read.

        Errors: a ValueError if they cannot be joined, or the module runs several times in a
        forward pass.
        """
        return whole(self.name, self._last_calls)

    @property
    def _last_calls(self) -> list[Call]:
        """The calls of the last text, as they ran.

        Errors: a ValueError if the module runs several times in a forward pass.
        """
        runs = self.runs
        if any(run[0].beside for run in runs[1:]):
            raise ValueError(
                f"{self.name!r} attends {len(runs)} times in a forward pass, and each time is a "
                f"record of its own. Use seen[{runs[0].name!r}] to seen[{runs[-1].name!r}], or "
                f"one call by its number."
            )
        if len(runs) > 1:
            raise ValueError(
                f"{self.name!r} runs {len(runs)} times in a forward pass, and each run is a layer "
                f"of its own. Use seen[{self.name!r}].runs[-1] for the last of them, or one call "
                f"by its number."
            )
        text = self.texts[-1]
        if (len(text) > 1 or text[-1].apart) and any(call.merged for call in text):
            raise ValueError(
                f"the calls of {self.name!r} cannot be joined: its last keys are keys of another "
                "text, before which each call has more keys of its own. Take one call by its "
                "number."
            )
        return text

    def followed(self, indices: Sequence[Sequence[int]] | None) -> "Watched":
        """Return the record with the rows of each text that belong together, as of `Seen.follow`.

        Args:
            indices: For each hypothesis the row of each call; None: the rows of the last call.
        """
        texts = [text for run in self.runs for text in run.texts]
        calls = (followed(text, indices, (number,)) for number, text in enumerate(texts))
        return Watched(self.name, [call for text in calls for call in text])

    @property
    def kept(self) -> list[tuple[int, Call]]:
        """The number of each call, and the call without tokens that were rejected later.

        Errors: a ValueError if rows of a text changed places.
        """
        found: dict[int, Call] = {}
        places = {id(call): place for place, call in enumerate(self._calls)}
        for text in self.texts:
            check_rows(self.name, text)
            for call, part in without_rejected(text):
                found.setdefault(places[id(call)], part)
        return sorted(found.items(), key=lambda one: one[0])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not self.__dict__.get("_made"):
            own = self.__dict__.get("_kind")
            why = f"{self.name!r} is a {own} that was not observed. Use mixers=True." if own else ""
            raise AttributeError(why or name)
        known = vars(self._calls[-1])["values"]
        return self[name] if name in known else getattr(self.joined, name)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | slice):
            return self._calls[key]
        # Join this statistic only, as others may not be joinable.
        name = self._calls[-1].name_of(key)
        if name not in self._together:
            self._together[name] = _sum([call.alone(name) for call in self.last_text])[name]
        return self._together[name]

    def _repr_html_(self) -> str:
        from glasshead.drawing import Block, Document, Paragraph

        calls = "1 call" if len(self) == 1 else f"{len(self)} calls"
        blocks: list[Block] = []
        if len(self.runs) > 1:
            blocks.append(Paragraph("Each run of the module is a layer of its own: see .runs."))
        elif self._calls:
            text = self.last_text
            last = text[-1] if len(text) == 1 else self._joinable(text)
            blocks.append(value_table(last))
            if all(call.has_weights for call in text):
                blocks += first_head(self.weights)
        title = f"{self.name or 'The model'}: {calls}"
        return Document(blocks, title=title)._repr_html_()

    def _joinable(self, text: Sequence[Call]) -> Call:
        """Join the calls of a text, with those of its statistics that can be joined."""
        values = {}
        for name in text[-1].values:
            with suppress(ValueError):
                values[name] = self[name]
        known = {name: one for name, one in text[-1].statistics.items() if name in values}
        return Call(text[-1].shape, known, values, CallInfo())

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *(dir(self._calls[0]) if self._calls else ())])


def close(watched: Watched) -> None:
    """Compute what waits in a record, and let go of what computes it."""
    len(watched)
    watched._settle = None  # noqa: SLF001 - of this module


def check_whole(name: str, calls: Sequence[Call], what: str) -> None:
    """Raise a ValueError if ranks share an attention that a function takes whole.

    Args:
        name: Name of the attention.
        calls: Its calls.
        what: Name of the function, for the error.
    """
    shard = next((one for call in calls for one in call.shards), None)
    if shard is not None:
        raise UnfitError(
            f"{what} needs all {shard.axis} of an attention, but this rank computes only a part "
            f"of them for {name!r}. Pass seen.gather(), which all ranks must call."
        )


def check_of_tokens(name: str, calls: Sequence[Call], what: str) -> None:
    """Raise a ValueError if an attention weighs features, and not tokens.

    Args:
        name: Name of the attention.
        calls: Its calls.
        what: Name of the function, for the error.
    """
    if any(call.over_features for call in calls):
        raise ValueError(
            f"{what} needs attention to tokens, but {name!r} weighs features by its softmax. "
            "Choose others with layers=."
        )


def _sum(calls: Sequence[Call]) -> Call:
    """Join calls pairwise, by halves, so that tensors are copied O(log n) times."""
    if len(calls) == 1:
        return calls[0]
    middle = len(calls) // 2
    return _sum(calls[:middle]) + _sum(calls[middle:])
