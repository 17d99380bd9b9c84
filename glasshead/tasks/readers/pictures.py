"""Loading vision models from Hugging Face folders, and preparing pictures for them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.message import Message
from glasshead.tasks.data.files import shown
from glasshead.tasks.readers.huggingface import (
    LOCAL,
    checked_shapes,
    errors_in_a_sentence,
    loaded_model,
    quiet,
)
from glasshead.tasks.readers.named_elsewhere import attention_of

if TYPE_CHECKING:
    from PIL.Image import Image

_PREPARATION = "preprocessor_config.json"
# What many vision transformers are given, if a folder does not tell.
_MEAN = _STD = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class PictureReader:
    """A vision model and the preparation of its pictures.

    Attributes:
        model: The model, which takes `pixel_values`.
        prepare: Returns the numbers that the model takes of a picture in RGB.
        mean, std: By which these are normalized, per color.
    """

    model: nn.Module
    prepare: Callable[["Image"], Float[Tensor, "1 3 height width"]]
    mean: tuple[float, ...] = _MEAN
    std: tuple[float, ...] = _STD

    def read(self, pixels: Float[Tensor, "1 3 height width"]) -> Any:
        """Run the model over a prepared picture."""
        return self.model(pixel_values=pixels)

    def shown(self, pixels: Float[Tensor, "1 3 height width"]) -> Float[Tensor, "height width 3"]:
        """Return the picture that was prepared, as numbers from 0 to 1."""
        mean, std = (torch.tensor(each).reshape(3, 1, 1) for each in (self.mean, self.std))
        return (pixels[0] * std + mean).clamp(0, 1).permute(1, 2, 0)


def reader_of_pictures(folder: Path) -> PictureReader:
    """Load a vision model, and the preparation of its pictures where the folder has one.

    Errors: a ValueError or an OSError in one sentence if it is another kind of model, is
    incomplete, has pickled weights, or needs remote code.
    """
    shapes = checked_shapes(folder)
    with quiet():
        from transformers import AutoModel

        config, attention = _config(folder)
        model = loaded_model(folder, AutoModel, config, shapes, attention).eval()
        prepared = (folder / _PREPARATION).is_file()
        reader = _prepared(folder, model) if prepared else _resized(model, config)
    with errors_in_a_sentence(folder, "the model"), torch.no_grad():
        from PIL import Image

        reader.read(reader.prepare(Image.new("RGB", (64, 48))))
    return reader


def _config(folder: Path) -> tuple[Any, str]:
    """Return the config of a vision model, and the name of its attention.

    Errors: a ValueError if the model takes something besides a picture.
    """
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    with errors_in_a_sentence(folder, "config.json"):
        config = AutoConfig.from_pretrained(folder, **LOCAL)
    built: Any = MODEL_MAPPING.get(type(config), None)
    built = built[0] if isinstance(built, tuple | list) else built
    if getattr(built, "main_input_name", None) != "pixel_values" or config.is_encoder_decoder:
        raise ValueError(
            Message(
                "{folder} has {kind}, which needs more than a picture. Watch it in Python with "
                "gh.watch(model, …).",
                folder=shown(folder),
                kind=config.model_type,
            )
        )
    return config, attention_of(config, built)


def _prepared(folder: Path, model: nn.Module) -> PictureReader:
    from transformers import AutoImageProcessor

    with errors_in_a_sentence(folder, _PREPARATION):
        processor: Any = AutoImageProcessor.from_pretrained(folder, **LOCAL)

    def prepare(picture: "Image") -> Tensor:
        with quiet():
            return processor(images=picture, return_tensors="pt")["pixel_values"]

    if not getattr(processor, "do_normalize", True):
        return PictureReader(model, prepare, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    mean, std = (getattr(processor, name, None) or _MEAN for name in ("image_mean", "image_std"))
    return PictureReader(model, prepare, tuple(mean), tuple(std))


def _resized(model: nn.Module, config: Any) -> PictureReader:
    """Return a reader that resizes pictures to the size of the config, and scales them to ±1."""
    size = config.image_size
    height, width = size if isinstance(size, list | tuple) else (size, size)

    def prepare(picture: "Image") -> Tensor:
        import numpy as np

        small = picture.resize((width, height))
        numbers = torch.from_numpy(np.array(small)).float().permute(2, 0, 1) / 255
        return ((numbers - 0.5) / 0.5)[None]

    return PictureReader(model, prepare)
