"""Loading: a language model that writes, from a run or from what others have made."""

from pathlib import Path
from typing import Any

from glasshead.drawing.printable import printable
from glasshead.models import LanguageModel
from glasshead.models.pretrained import is_llama2c, load_pretrained
from glasshead.tasks.run_folder import RunFolder, is_of_huggingface
from glasshead.tasks.tokenizing import Tokenizer, huggingface_tokenizer, llama2c_tokenizer
from glasshead.tasks.write.job import WRITE
from glasshead.tasks.write.settings import WriteSettings

Loaded = tuple[LanguageModel, Tokenizer, WriteSettings | None]


def loaded(path: str | Path) -> Loaded:
    """The model of a run folder, of a folder of Hugging Face, or of a file of llama2.c.

    Errors: an OSError or ValueError where it is none of these, is not whole, or does not write.
    """
    place = Path(path)
    file = llama2c_file(place)
    if file is not None:
        return _pretrained(file, llama2c_tokenizer(_beside(file)))
    if is_of_huggingface(place):
        return _pretrained(place, None)
    return WRITE.load(RunFolder(place).path)


def _pretrained(place: Path, tokenizer: Tokenizer | None) -> Loaded:
    model: Any = load_pretrained(place)
    name = printable(str(place))
    if not isinstance(model, LanguageModel):
        raise ValueError(  # noqa: TRY004 - what the folder has is a value
            f"{name} has an encoder, which reads a text and does not go on with it: name a model "
            "such as GPT-2 or Llama."
        )
    tokenizer = huggingface_tokenizer(place) if tokenizer is None else tokenizer
    # A vocabulary is often filled up to a round number.
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer of {name} has {tokenizer.vocab_size} tokens, and the model "
            f"{model.config.vocab_size}: take the one that it was trained with."
        )
    return model, tokenizer, None


def llama2c_file(place: Path) -> Path | None:
    """The model of llama2.c that a file is, or that a folder holds; None where there is none.

    Errors: a ValueError where a folder holds several.
    """
    if place.exists() and not place.is_dir():
        return place if place.suffix == ".bin" else None
    if not place.is_dir() or (place / "config.json").exists():
        return None
    found = [file for file in sorted(place.glob("*.bin")) if is_llama2c(file)]
    if len(found) > 1:
        raise ValueError(
            f"{printable(str(place))} has several models, {found[0].name} and {found[1].name} "
            "among them: name one."
        )
    return found[0] if found else None


def _beside(file: Path) -> Path:
    """The tokenizer beside a file of llama2.c."""
    found = [one for one in sorted(file.parent.glob("tok*.bin")) if one != file]
    if len(found) == 1:
        return found[0]
    there = f"there are {', '.join(one.name for one in found)}" if found else "there is none"
    raise FileNotFoundError(
        f"{printable(str(file))} takes one tokenizer beside it, such as tok512.bin, and {there}: "
        "put the one there that it was trained with."
    )
