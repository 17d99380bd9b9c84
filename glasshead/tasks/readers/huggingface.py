"""Loading text models from Hugging Face folders without running code from the folder."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from tokenizers import Tokenizer as Inner
from torch import Tensor, nn

from glasshead.extras import require
from glasshead.files import JSON_BYTES, TOKENIZER_BYTES, check_regular, read_object
from glasshead.message import Message
from glasshead.models.pretrained.folder import AGAIN, PICKLED, StoredTensors, check_numbers
from glasshead.models.saving import TooLargeError, built_on_meta
from glasshead.tasks.data.files import shown
from glasshead.tasks.readers.named_elsewhere import attention_of, check_names, hide_kernels
from glasshead.tasks.readers.reader import Predicts, Reader
from glasshead.tasks.tokenizers.bounds import check_rules, check_sentencepiece, rules_of
from glasshead.tasks.tokenizers.chunks import (
    affixes,
    check_length,
    cutting,
    encode_in_chunks,
    panics_as_errors,
)
from glasshead.tasks.tokenizers.tokenizer import LEAST, read_checked
from glasshead.tasks.tokenizers.trial import Trial, trial_of

# Maximum sizes of the files that transformers reads beside the weights.
_LARGEST = {".json": JSON_BYTES} | dict.fromkeys(
    (".txt", ".model", ".jinja", ".bpe", ".spm", ".vocab", ".tiktoken", ".py"), TOKENIZER_BYTES
)
_SENTENCEPIECE = (".model", ".spm")
_TEMPLATES = "additional_chat_templates"
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
# The space before a word in SentencePiece vocabularies.
_SPACES = ("\u2581", " ")
# The most bytes of masks and positions that a model keeps beside its weights.
_BUFFERS = 2**30
# Above the level of errors.
_SILENT = 100
# Names of the context length in configs.
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# Tokenizers write this number or a larger one for "no limit".
_NO_LIMIT = 2**30


def reader_of_huggingface(folder: Path, device: torch.device) -> Reader:
    """Load a text-only decoder or encoder and its tokenizer.

    Errors: a ValueError or an OSError in one sentence if it is another kind of model, is
    incomplete, has pickled weights, or needs remote code.
    """
    shapes = checked_shapes(folder)
    with quiet():
        kind, config, attention = _kind(folder)
        tokenizer = _tokenizer(folder)
        model = loaded_model(folder, kind, config, shapes, attention).to(device).eval()
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        raise ValueError(
            Message(
                "the tokenizer in {folder} has {count} tokens, and the model {of}. Use the "
                "tokenizer that it was trained with.",
                folder=shown(folder),
                count=len(tokenizer),
                of=model.get_input_embeddings().num_embeddings,
            )
        )

    reader = reader_of_transformers(shown(folder), model, tokenizer, _file_of(folder))
    # Some invalid configs fail only when the model runs.
    with errors_in_a_sentence(folder, "the model"), torch.no_grad():
        reader.read(torch.zeros(1, 2, dtype=torch.long, device=device))
    return reader


def reader_of_transformers(name: str, model: nn.Module, tokenizer: Any, file: str) -> Reader:
    """Create the reader of a model with a tokenizer of transformers.

    Args:
        name: Name of the model.
        model: One of transformers, run without its head; any other takes tokens alone.
        tokenizer: The tokenizer.
        file: Name of its file for errors.
    """
    read: Callable[[Int[Tensor, "texts length"]], Any] = model
    if hasattr(model, "base_model"):
        config = model.config
        read = partial(
            _read_base, model, {"use_cache": False} if hasattr(config, "use_cache") else {}
        )
    inner, predicts = _inner(tokenizer), _predicts(model)
    cut, trial = _cutting(inner), None if inner is None else trial_of(inner, file)
    return Reader(
        name=name,
        kind="model",
        model=model,
        read=read,
        encode=partial(_encoded, file, tokenizer, cut, trial),
        cut=cut,
        token=partial(_written, file, tokenizer),
        ordinary=sorted({*tokenizer.get_vocab().values()} - {*tokenizer.all_special_ids}),
        ending=_ending(tokenizer),
        around=_around(tokenizer),
        context=_context(model, tokenizer),
        unknown=_unknown(tokenizer),
        predicts=predicts,
        labels=_labels(model) if predicts in ("labels", "token_labels") else (),
        blank=tokenizer.mask_token_id if predicts == "blanks" else None,
    )


def _predicts(model: nn.Module) -> Predicts | None:
    """Return what the head of a model predicts, which its class states."""
    if not hasattr(model, "base_model"):
        return None
    from transformers.models.auto import modeling_auto as known

    heads: dict[Predicts, Any] = {
        "tokens": known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "blanks": known.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        "labels": known.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        "token_labels": known.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    }
    kind: Any = model.config
    return next(
        (one for one, names in heads.items() if names.get(kind.model_type) == type(model).__name__),
        None,
    )


def _labels(model: Any) -> tuple[str, ...]:
    names = model.config.id2label
    return tuple(str(names[number]) for number in sorted(names))


def _read_base(model: Any, options: dict[str, Any], tokens: Int[Tensor, "texts length"]) -> Any:
    """Run a model of transformers without its head, whose logits are not needed.

    Errors: a ValueError for a token that the model does not know.
    """
    known = _vocabulary_size(model)
    if known is not None and tokens.numel() and (most := int(tokens.max())) >= known:
        raise ValueError(
            Message(
                "the tokens of {model} must be from 0 to {largest}, got {most} from its "
                "tokenizer. Use the tokenizer that belongs to the model.",
                model=type(model).__name__,
                largest=known - 1,
                most=most,
            )
        )
    return model.base_model(input_ids=tokens, attention_mask=torch.ones_like(tokens), **options)


def _vocabulary_size(model: Any) -> int | None:
    """Return the number of token embeddings; None if the model does not tell."""
    try:
        return getattr(model.get_input_embeddings(), "num_embeddings", None)
    except (AttributeError, NotImplementedError):
        return None


def checked_shapes(folder: Path) -> dict[str, Sequence[int]]:
    """Check the files in a folder of transformers, and return the shapes of its weights by name.

    Errors: a MissingLibraryError without transformers; a ValueError or an OSError in one sentence
    if files are no regular ones or too large, or name code or files elsewhere, or weights are
    missing, pickled or damaged.
    """
    require(f"opening {shown(folder)}", "transformers")
    hide_kernels()
    _check_files(folder)
    check_names(folder)
    _check_weights(folder)
    with errors_in_a_sentence(folder, "the model"):
        shapes = StoredTensors(folder).shapes
    file = folder / "config.json"
    check_numbers(read_object(file, AGAIN), file, len(shapes))
    return shapes


def _check_files(folder: Path) -> None:
    """Check that all files are regular ones of limited size, as transformers reads them whole.

    Errors: an OSError for a pipe, a device, or a file that is too large.
    """
    for file in [*sorted(folder.iterdir()), *sorted(folder.glob(f"{_TEMPLATES}/*"))]:
        most = TOKENIZER_BYTES if file.name.startswith("token") else _LARGEST.get(file.suffix)
        try:
            # Transformers ignores dangling links, too.
            if file.exists() and not file.is_dir():
                check_regular(file, None if file.suffix in (".safetensors", *PICKLED) else most)
        except OSError as error:
            raise type(error)(
                Message(
                    "{file} cannot be read ({strerror}). Put the file of the model there, or "
                    "remove it.",
                    file=shown(file),
                    strerror=error.strerror,
                )
            ) from error


def _check_weights(folder: Path) -> None:
    """Check that there are weights that can be read without unpickling.

    Errors: a ValueError if they are pickled, a FileNotFoundError if there are none.
    """
    if any(folder.glob("*.safetensors")):
        return
    pickled = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLED)
    if pickled:
        raise ValueError(
            Message(
                "{folder} has its weights in {file} alone, which is pickled and could run any "
                "code. Save them as safetensors with model.save_pretrained(folder).",
                folder=shown(folder),
                file=pickled[0],
            )
        )
    raise FileNotFoundError(
        Message(
            "{folder} has no weights: there is no model.safetensors in it. Check its name.",
            folder=shown(folder),
        )
    )


def _kind(folder: Path) -> tuple[Any, Any, str]:
    """Return the class that loads the model, its config, and the name of its attention.

    Errors: a ValueError if the model does not read text alone.
    """
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
    )
    from transformers.models.auto import modeling_auto as known

    with errors_in_a_sentence(folder, "config.json"):
        config = AutoConfig.from_pretrained(folder, **LOCAL)
    named = config.architectures
    wanted = named[0] if isinstance(named, list) and named else None
    heads: dict[Any, Any] = {
        AutoModelForCausalLM: known.MODEL_FOR_CAUSAL_LM_MAPPING,
        AutoModelForMaskedLM: known.MODEL_FOR_MASKED_LM_MAPPING,
        AutoModelForSequenceClassification: known.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
        AutoModelForTokenClassification: known.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    }
    named_classes = ((kind, mapping.get(type(config), None)) for kind, mapping in heads.items())
    kind, built = next(
        ((kind, one) for kind, one in named_classes if getattr(one, "__name__", "") == wanted),
        (AutoModel, known.MODEL_MAPPING.get(type(config), None)),
    )
    # Of several classes for one config, the first is the plain model.
    built = built[0] if isinstance(built, tuple | list) else built
    if config.is_encoder_decoder or built is None or not _reads_text_alone(built):
        raise ValueError(
            Message(
                "glasshead reads text with a decoder or an encoder alone, and {folder} has "
                "{kind}, which needs more. Watch it in Python with gh.watch(model, …).",
                folder=shown(folder),
                kind=wanted or config.model_type,
            )
        )
    return kind, config, attention_of(config, built)


def _reads_text_alone(built: Any) -> bool:
    modalities = getattr(built, "input_modalities", "text")
    return built.main_input_name == "input_ids" and modalities in ("text", ("text",), ["text"])


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    files = {*folder.glob("*token*"), *folder.glob("*vocab*")}
    # transformers 4 writes these beside a tokenizer.
    if {file.name for file in files} <= {"added_tokens.json", "special_tokens_map.json"}:
        raise FileNotFoundError(
            Message(
                "{folder} has no tokenizer: there is no tokenizer.json in it. Save the model's "
                "own there, with tokenizer.save_pretrained(folder).",
                folder=shown(folder),
            )
        )
    if (folder / "tokenizer.json").exists():
        read_checked(folder / "tokenizer.json")
    for file in folder.iterdir():
        if file.suffix in _SENTENCEPIECE:
            check_sentencepiece(file, shown(file))
    with errors_in_a_sentence(folder, "the tokenizer"), panics_as_errors(_file_of(folder)):
        tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
    # Of other files than tokenizer.json, transformers makes rules of its own.
    file = _file_of(folder)
    if (inner := _inner(tokenizer)) is not None:
        check_rules(rules_of(inner), file)
        if (trial := trial_of(inner, file)) is not None:
            trial.check([LEAST])
    with errors_in_a_sentence(folder, "the tokenizer"), panics_as_errors(file):
        _around(tokenizer)
    return tokenizer


def loaded_model(
    folder: Path, kind: Any, config: Any, shapes: Mapping[str, Sequence[int]], attention: str
) -> Any:
    """Load the model, and check that all of its weights were in the file.

    Args:
        folder: Of transformers.
        kind: The auto class that builds it.
        config: Its config.
        shapes: Of its weights, from `checked_shapes`; no larger model is built.
        attention: From `attention_of`.
    """
    build = partial(kind.from_config, attn_implementation=attention)
    with errors_in_a_sentence(folder, "the model"):
        # transformers 4 takes the memory of what a config describes before it looks at weights.
        check_buffers(built_on_meta(build, config, shapes, folder / "config.json"), folder)
        # Mismatched shapes are reported as missing, instead of in many lines.
        model, loading = kind.from_pretrained(
            folder,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            attn_implementation=attention,
            **LOCAL,
        )
    prefix = f"{model.base_model_prefix}." if model.base_model is not model else ""
    # A pooler after the last layer is not used.
    # transformers 5 tells both shapes beside the name.
    mismatched = [one if isinstance(one, str) else one[0] for one in loading["mismatched_keys"]]
    missing = [
        key
        for key in (*loading["missing_keys"], *mismatched)
        if key.startswith(prefix) and not key.removeprefix(prefix).startswith("pooler.")
    ]
    if missing:
        name: str = min(missing)
        if len(missing) > 1:
            name = Message("{words} and {more:,} more", words=name, more=len(missing) - 1)
        raise ValueError(
            Message(
                "the weights in {folder} must be those of {model}: {name} is missing or of "
                "another shape. Check config.json.",
                folder=shown(folder),
                model=type(model).__name__,
                name=name,
            )
        )
    # A classifier's head without weights in the file would predict at random.
    is_random = any(not key.startswith(prefix) for key in (*loading["missing_keys"], *mismatched))
    return model.base_model if is_random and _predicts(model) != "tokens" else model


def check_buffers(model: nn.Module, folder: Path) -> None:
    """Raise a ValueError if a model has far larger buffers, which no stored weights bound.

    Args:
        model: On the meta device.
        folder: Its folder, for the error.
    """
    size = sum(buffer.numel() * buffer.itemsize for buffer in model.buffers())
    if size > _BUFFERS:
        raise TooLargeError(
            f"{shown(folder / 'config.json')} needs tables of at most {_BUFFERS:,} bytes in "
            f"addition to the weights, got {size:,}. Use the config.json that belongs to the "
            "weights."
        )


def _inner(tokenizer: Any) -> Inner | None:
    """Return the tokenizer of `tokenizers` in one of transformers; None in those of Python."""
    inner = getattr(tokenizer, "backend_tokenizer", None)
    return inner if isinstance(inner, Inner) else None


def _cutting(inner: Inner | None) -> Callable[[str], list[str]]:
    """Return the function that splits long texts, where that leaves the tokens unchanged."""
    return (lambda text: check_length([text])) if inner is None else cutting(inner)


def _encoded(
    file: str,
    tokenizer: Any,
    cut: Callable[[str], list[str]],
    trial: Trial | None,
    texts: Sequence[str],
) -> list[list[int]]:
    """Tokenize texts, some chunks of them at once."""
    parts = [cut(text) for text in texts]
    if trial is not None:
        trial.check(part for text in parts for part in text)
    encode = partial(tokenizer, add_special_tokens=False, verbose=False)
    with panics_as_errors(file):
        return encode_in_chunks(parts, lambda some: encode(some)["input_ids"])


def _file_of(folder: Path) -> str:
    """Return the name of the tokenizer's file for error messages."""
    file = folder / "tokenizer.json"
    return shown(file) if file.exists() else f"the tokenizer in {shown(folder)}"


def _written(file: str, tokenizer: Any, token: int) -> str:
    """Return the text of a token, with the space before it."""
    with panics_as_errors(file):
        written, piece = tokenizer.decode([token]), tokenizer.convert_ids_to_tokens(token)
    # SentencePiece strips it at the beginning of a text.
    if piece.startswith(_SPACES) and not written.startswith(" "):
        return f" {written}"
    return written or piece


def _context(model: Any, tokenizer: Any) -> int | None:
    """Return the context length of the config, or else of the tokenizer.

    A tokenizer's limit is less reliable, and often that of another model. None where neither has
    one, or positions are relative without a limit, as with ALiBi.
    """
    config = model.config.get_text_config() if hasattr(model, "base_model") else None
    lengths = (getattr(config, name, None) for name in _LENGTHS)
    own = next((one for one in lengths if type(one) is int and one > 0), None)
    if config is not None and own is not None and not _has_distances_alone(config):
        return own - _first_position(model)
    limit = tokenizer.model_max_length
    return int(limit) if isinstance(limit, int | float) and 0 < limit < _NO_LIMIT else None


def _has_distances_alone(config: Any) -> bool:
    """Return whether positions are relative and unlimited (ALiBi); those of MPT are limited."""
    alibi = getattr(config, "alibi", False) is True
    return config.model_type == "bloom" or (alibi and config.model_type != "mpt")


def _first_position(model: Any) -> int:
    """Return the first position index; RoBERTa's positions start after the padding index."""
    return max(
        (
            module.padding_idx + 1
            for name, module in model.named_modules()
            if name.endswith("position_embeddings")
            and getattr(module, "padding_idx", None) is not None
        ),
        default=0,
    )


def _ending(tokenizer: Any) -> tuple[int, ...]:
    """Return the end token, or else the separator token."""
    ends = (tokenizer.eos_token_id, tokenizer.sep_token_id)
    return next(((end,) for end in ends if end is not None), ())


def _around(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens that the tokenizer adds before and after a text."""
    bare = tokenizer(LEAST, add_special_tokens=False)["input_ids"]
    return affixes(bare, tokenizer(LEAST)["input_ids"])


def _unknown(tokenizer: Any) -> int | None:
    """Return the unknown token, or None where another special token stands in for it."""
    others = (tokenizer.eos_token_id, tokenizer.bos_token_id)
    return None if tokenizer.unk_token_id in others else tokenizer.unk_token_id


@contextmanager
def errors_in_a_sentence(folder: Path, part: str) -> Iterator[None]:
    """Turn any error of transformers into a ValueError of one sentence."""
    try:
        yield
    except (MemoryError, TooLargeError):
        raise
    except Exception as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise ValueError(
            Message(
                "{part} in {folder} cannot be loaded ({reason}). glasshead loads what the "
                "installed transformers knows, without code from elsewhere.",
                part=part,
                folder=shown(folder),
                reason=said.removesuffix(".") or type(error).__name__,
            )
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars, log and warnings of transformers."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(_SILENT)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
