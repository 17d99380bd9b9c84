"""Prompt maps: where in a picture a diffusion model looks at each word of its prompt."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.attention.weights import Weights
from glasshead.recipe.validation import UnfitError, whole_number
from glasshead.watching.analytics.stacks import with_enclosing
from glasshead.watching.attention_map import AttentionMap
from glasshead.watching.errors import UnseenError
from glasshead.watching.interception.patches import check_compiled_code_is_seen
from glasshead.watching.layer_patterns import Layers
from glasshead.watching.layer_record import Call, Watched, check_whole
from glasshead.watching.module_calls import ModuleCall, calls_in_progress
from glasshead.watching.watch_and_intervene import observing
from glasshead.watching.watcher import WatchChoices, Watcher

# Latents are halved from level to level of a UNet.
_STRIDES = (1, 2, 4, 8, 16, 32)
# Processors of joint attention, by the beginning of their names: whether the text comes first.
_TEXT_FIRST = {
    "Flux": True,
    "FusedFlux": True,
    "JointAttn": False,
    "FusedJointAttn": False,
}


class PromptCall(NamedTuple):
    """One call of an attention to a prompt: the weight of each word in each patch.

    Attributes:
        layer: The name of the attention.
        step: The number of the forward pass.
        weights: For each word the weight that each patch gives it, the mean of the heads.
    """

    layer: str
    step: int
    weights: Float[Tensor, "words rows columns"]


class PromptMaps(Mapping[str, AttentionMap]):
    """The map of each word of a prompt over the picture: the mean of all layers and steps.

    Attributes:
        calls: The exact maps of each layer and step, on the grid of the layer.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self.calls: list[PromptCall] = []

    @property
    def layers(self) -> list[str]:
        """Names of the attentions, in order of execution."""
        return list(dict.fromkeys(call.layer for call in self.calls))

    @property
    def steps(self) -> int:
        """Number of forward passes."""
        return 1 + max((call.step for call in self.calls), default=-1)

    def of(
        self,
        word: str,
        *,
        layers: str | Sequence[str] | None = None,
        steps: Sequence[int] | None = None,
    ) -> AttentionMap:
        """Return the map of a word over some layers and steps.

        Maps of coarser layers are scaled to the finest grid, bilinearly, and all are averaged: a
        patch has the mean weight that it gives the word.

        Args:
            word: One of the words.
            layers: Patterns of names, as of `watch`; None: all.
            steps: Numbers of forward passes; None: all.

        Errors: a KeyError for another word, a TypeError or ValueError if nothing is chosen.
        """
        if word not in self._words:
            raise KeyError(
                f"{word!r} is not a word of the maps. Use one of {', '.join(self._words)}."
            )
        chosen = Layers(layers, with_enclosing(self.layers))
        numbers = None if steps is None else {whole_number(step, "steps") for step in steps}
        place = self._words.index(word)
        maps = [
            call.weights[place]
            for call in self.calls
            if call.layer in chosen and (numbers is None or call.step in numbers)
        ]
        if not maps:
            raise ValueError(
                f"maps are of {len(self.layers)} layers and {self.steps} steps, counted from 0, "
                f"but none of those was chosen. Choose others."
            )
        finest = max((one.shape for one in maps), key=prod)
        total = torch.zeros(finest, dtype=torch.double)
        for one in maps:
            total += _scaled(one, finest).double()
        return AttentionMap((total / len(maps)).float(), f"{word!r}, mean of {len(maps)} calls")

    def __getitem__(self, word: str) -> AttentionMap:
        return self.of(word)

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __len__(self) -> int:
        return len(self._words)

    def __repr__(self) -> str:
        words = ", ".join(map(repr, self._words))
        return f"PromptMaps of {words}: {len(self.layers)} layers, {self.steps} steps"


def _scaled(one: Float[Tensor, "rows columns"], grid: Sequence[int]) -> Tensor:
    if one.shape == torch.Size(grid):
        return one
    return F.interpolate(one[None, None], tuple(grid), mode="bilinear")[0, 0]


@contextmanager
def prompt_maps(
    model: nn.Module,
    words: Mapping[str, Sequence[int]],
    *,
    layers: str | Sequence[str] | None = None,
    batch: int = -1,
) -> Iterator[PromptMaps]:
    """Map each word of a prompt over the picture that a diffusion model makes within the block.

    M_i = Σ_(j of the word) mean_heads P_ij for each patch i, as `P @ indicator` of the lazy weights
    of each call, so that memory grows with patches · words. In a UNet of diffusers P is the
    cross-attention, in transformers that read prompt and picture as one text (SD3, Flux) the rows
    of the patches and the columns of the prompt. The model runs on its own kernels, and its
    pictures stay the same, bit for bit.

    Args:
        model: The model that a pipeline calls in each step, `pipe.unet` or `pipe.transformer`.
        words: The places of its tokens in the encoded prompt, for each word; see `prompt_tokens`.
        layers: Patterns of module names, as of `watch`; None: all.
        batch: The row of the batch. With guidance the prompt comes last, after the negative one.

    Errors: a TypeError or ValueError if an argument is invalid. Within the block a ValueError
    if the prompt has fewer tokens. At the end of the block an `UnseenError`, as of `watch`,
    if no attention to a prompt was seen, or if its tokens are not known.

    Source: Tang et al. 2023 (What the DAAM), section 3.
    """
    if not isinstance(words, Mapping) or not words:
        raise TypeError(
            f'prompt_maps needs the tokens of each word, such as {{"cat": [5]}}, got {words!r}.'
        )
    tokens = {word: _places(word, places) for word, places in words.items()}
    watcher = _PromptWatcher(model, layers, tokens, whole_number(batch, "batch", least=None))
    with observing(watcher):
        yield watcher.maps
    check_compiled_code_is_seen()
    watcher.check_seen()
    if watcher.why is not None:
        raise UnseenError(
            "prompt_maps needs attention to a prompt whose tokens are known, but saw "
            f"{watcher.why}. Omit it with layers=."
        )
    if not watcher.maps.calls:
        raise UnseenError(
            f"prompt_maps saw no attention of a picture to a prompt in {type(model).__name__}. "
            "Give it the UNet or transformer of diffusers that the block runs."
        )


def prompt_tokens(prompt: str, word: str, tokenizer: Any) -> list[int]:
    """Return the places of a word's tokens in an encoded prompt.

    Args:
        prompt: The prompt.
        word: A word of it, or several.
        tokenizer: Of transformers, as `pipe.tokenizer`.

    Errors: a ValueError if the prompt has no such word.
    """
    whole = list(tokenizer(prompt)["input_ids"])
    own = list(tokenizer(word, add_special_tokens=False)["input_ids"])
    places = [
        place
        for first in range(len(whole) - len(own) + 1)
        if own and whole[first : first + len(own)] == own
        for place in range(first, first + len(own))
    ]
    if not places:
        raise ValueError(
            f"the word of prompt_tokens must be part of the prompt {prompt!r}, got {word!r}."
        )
    return places


def _places(word: str, places: Any) -> list[int]:
    if not isinstance(places, list | tuple | range) or not places:
        raise TypeError(f"the tokens of {word!r} must be a list such as [5], got {places!r}.")
    return [whole_number(place, f"the tokens of {word!r}") for place in places]


class _PromptWatcher(Watcher):
    """Watcher that keeps of each call the weight that each patch gives each word.

    Attributes:
        maps: The maps so far.
        why: An attention that may be one to a prompt, and why its tokens are not known.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: str | Sequence[str] | None,
        words: Mapping[str, Sequence[int]],
        batch: int,
    ) -> None:
        # Weights are let go of after each call.
        super().__init__(model, layers, WatchChoices({}, keep="weights", budget=2**62))
        self.maps, self.why = PromptMaps(list(words)), None
        self._tokens, self._batch = list(words.values()), batch
        self._step: object = None
        self._steps = -1

    def record(self, name: str, make: Callable[[], Call]) -> None:
        made = make()
        check_whole(name, [made], "prompt_maps")
        calls = calls_in_progress(self.names)
        whole = calls[-1]
        if whole.identity is not self._step:
            self._step, self._steps = whole.identity, self._steps + 1
        if made.weights is not None and len(made.weights.shape) == 4:
            place = _prompt_of(made, calls)
            if isinstance(place, str):
                self.why = f"{name!r}, where {place}"
            elif place is not None:
                weights = self._words(made.weights, place)
                self.maps.calls.append(PromptCall(name, self._steps, weights))
        self.watched[name] = Watched(name)

    def _words(self, W: Weights, place: "_Place") -> Float[Tensor, "words rows columns"]:
        most = max(token for tokens in self._tokens for token in tokens)
        if most >= place.length:
            raise UnfitError(
                f"words must name tokens of the {place.length} of the prompt, counted from 0, got "
                f"{most}."
            )
        if not -W.shape[0] <= self._batch < W.shape[0]:
            raise UnfitError(f"batch must be one of the {W.shape[0]} rows, got {self._batch}.")
        right = torch.zeros(W.shape[-1], len(self._tokens), dtype=W.dtype, device=W.device)
        for word, tokens in enumerate(self._tokens):
            right[[place.first + token for token in tokens], word] = 1.0
        heads = [W.head(self._batch, head) @ right for head in range(W.shape[1])]
        mean = torch.stack(heads).mean(0)[place.patch : place.patch + prod(place.grid)]
        return mean.T.reshape(len(self._tokens), *place.grid).float().cpu()


class _Place(NamedTuple):
    """The places of the patches and the prompt in an attention.

    Attributes:
        grid: Rows and columns of patches.
        patch: The query that is the first patch.
        first: The key that is the first token of the prompt.
        length: How many tokens the prompt has.
    """

    grid: tuple[int, int]
    patch: int
    first: int
    length: int


def _prompt_of(call: Call, calls: Sequence[ModuleCall]) -> _Place | str | None:
    """Return where patches and prompt are; None if there is no prompt, or a clause."""
    own, whole = calls[0].arguments, calls[-1].arguments
    text = whole.get("encoder_hidden_states")
    if not isinstance(text, Tensor):
        return None
    tokens = text.shape[1]
    if call.keys != tokens:
        return _joint(call, calls, tokens)
    if call.crossing or isinstance(own.get("encoder_hidden_states"), Tensor):
        latents = _latents(whole)
        grid = _level(latents, call.queries)
        refusal = f"{call.queries} queries are not a level of latents of {latents}"
        return refusal if grid is None else _Place(grid, 0, 0, tokens)
    compiled = calls[0].compiled
    return "compiled code does not show whether its keys are a prompt" if compiled else None


def _joint(call: Call, calls: Sequence[ModuleCall], tokens: int) -> _Place | str | None:
    """Return where patches and prompt are in one text; None for the picture alone."""
    whole, patches = calls[-1].arguments, call.keys - tokens
    grid = _patches(calls[-1].module, whole, _latents(whole))
    if call.queries != call.keys or grid is None or prod(grid) != patches:
        return None
    processor = type(getattr(calls[0].module, "processor", None)).__name__
    first = next((one for name, one in _TEXT_FIRST.items() if processor.startswith(name)), None)
    if first is None:
        return f"{processor} does not show whether the prompt comes before the picture"
    return _Place(grid, tokens, 0, tokens) if first else _Place(grid, 0, patches, tokens)


def _latents(given: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return height and width of the latents that a model was given."""
    for name in ("sample", "hidden_states"):
        one = given.get(name)
        if isinstance(one, Tensor) and one.ndim == 4:
            return one.shape[-2], one.shape[-1]
    return None


def _level(latents: tuple[int, int] | None, queries: int) -> tuple[int, int] | None:
    """Return the grid of a level of a UNet, by its number of queries."""
    if latents is None:
        return None
    grids = [(-(-latents[0] // stride), -(-latents[1] // stride)) for stride in _STRIDES]
    return next((grid for grid in grids if prod(grid) == queries), None)


def _patches(
    model: nn.Module, given: Mapping[str, Any], latents: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Return the grid of patches of a transformer."""
    ids = given.get("img_ids")
    if isinstance(ids, Tensor):
        # A row and a column for each patch, after a number that is the same for all.
        _, rows, columns = ids.reshape(-1, 3).amax(0).long().tolist()
        return rows + 1, columns + 1
    size = getattr(getattr(model, "config", None), "patch_size", None)
    if latents is None or not isinstance(size, int):
        return None
    return latents[0] // size, latents[1] // size
