"""Of Hugging Face: the tokenizer in a folder of a model, with its special tokens."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Inner

from glasshead.json_object import read_object
from glasshead.models.pretrained.tensors import ANEW
from glasshead.tasks.reading.files import FileName, shown
from glasshead.tasks.tokenizing.gpt2 import gpt2
from glasshead.tasks.tokenizing.panics import told_panics
from glasshead.tasks.tokenizing.special import SpecialTokens
from glasshead.tasks.tokenizing.tokenizer import Tokenizer, read_inner

_SAVE = "save one there, by AutoTokenizer.from_pretrained(…).save_pretrained(folder)"


def huggingface_tokenizer(folder: FileName) -> Tokenizer:
    """The tokenizer of a folder: tokenizer.json, or GPT-2's vocab.json and merges.txt.

    generation_config.json and config.json tell special tokens as numbers, tokenizer_config.json and
    special_tokens_map.json as tokens. What ends a text is what the numbers say, where they say
    something, as for generation by transformers; of the others the tokens come first.

    Errors: an OSError where there is no tokenizer, or it cannot be read; a ValueError where a file
    is malformed, or names no token that begins or ends a text.
    """
    path = Path(folder)
    inner = _inner(path)
    where = shown(path / "tokenizer.json")
    with told_panics(where):
        return Tokenizer(inner, _Told(path, inner).special(), where)


def _inner(folder: Path) -> Inner:
    if (folder / "tokenizer.json").exists():
        return read_inner(folder / "tokenizer.json")
    files = folder / "vocab.json", folder / "merges.txt"
    if all(file.exists() for file in files):
        return gpt2(*files).inner
    raise FileNotFoundError(
        f"{shown(folder)} has no tokenizer: there is neither a tokenizer.json in it, nor GPT-2's "
        f"vocab.json with merges.txt; {_SAVE}."
    )


class _Told:
    """What the files of a folder tell of special tokens."""

    def __init__(self, folder: Path, inner: Inner) -> None:
        self._inner = inner
        self._numbered = [_read(folder / x) for x in ("generation_config.json", "config.json")]
        self._named = [
            _read(folder / x) for x in ("tokenizer_config.json", "special_tokens_map.json")
        ]
        self._folder = folder

    def special(self) -> SpecialTokens:
        """All of them."""
        start, ends = self._token("bos"), self._numbers("eos")
        if not ends and (end := self._token("eos")) is not None:
            ends = (end,)
        known = [*ends, *([] if start is None else [start])]
        if not known:
            raise ValueError(
                f"{shown(self._folder)} names no token that begins or ends a text: add "
                f"eos_token_id to its generation_config.json."
            )
        end = known[0]
        pad, unknown = self._token("pad"), self._token("unk")
        start = end if start is None else start
        return SpecialTokens(
            pad=end if pad is None else pad,
            # Where all can be spelled, another token is often named as the unknown one.
            unknown=end if unknown is None or unknown in known else unknown,
            start=start,
            end=end,
            ends=ends,
            before=_before(self._inner),
        )

    def _token(self, kind: str) -> int | None:
        """The token as it is named, or else as it is numbered."""
        for told in self._named:
            value = told.get(f"{kind}_token")
            # With how it is stripped, or alone.
            content = value.get("content") if isinstance(value, dict) else value
            if (
                isinstance(content, str)
                and (number := self._inner.token_to_id(content)) is not None
            ):
                return number
        return next(iter(self._numbers(kind)), None)

    def _numbers(self, kind: str) -> tuple[int, ...]:
        name = f"{kind}_token_id"
        for told in self._numbered:
            value = told.get(name)
            if value is None:
                continue
            numbers = value if isinstance(value, list) else [value]
            if kind == "pad" and numbers == [-1]:  # as the first Llama has it: none
                return ()
            for number in numbers:
                if not self._is_token(number):
                    raise ValueError(
                        f"{name} in {shown(self._folder)} takes numbers of the tokenizer's tokens, "
                        f"and got {value!r}: take the tokenizer that belongs to the model."
                    )
            return tuple(numbers)
        return ()

    def _is_token(self, number: Any) -> bool:
        # `tokenizers` counts in 32 bits.
        known = type(number) is int and 0 <= number < 2**32
        return known and self._inner.id_to_token(number) is not None


def _before(inner: Inner) -> tuple[int, ...]:
    """What the tokenizer puts before a text, beside what would fill up short ones."""
    inner.no_padding()
    inner.no_truncation()
    bare = inner.encode("a", add_special_tokens=False).ids
    whole = inner.encode("a").ids
    places = range(len(whole) - len(bare) + 1)
    return next((tuple(whole[:i]) for i in places if whole[i : i + len(bare)] == bare), ())


def _read(file: Path) -> dict[str, Any]:
    return read_object(file, ANEW) if file.exists() else {}
