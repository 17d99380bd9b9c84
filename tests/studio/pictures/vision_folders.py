"""Small vision models of Hugging Face that nobody trained."""

import json
from pathlib import Path

import torch

SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}


def sharpened(model, folder: Path) -> Path:
    """Save a model whose weights are larger than at the beginning, so that heads differ."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    model.save_pretrained(folder)
    return folder


def vit_folder(folder: Path, **config) -> Path:
    """A ViT, of 4 x 5 patches if not told otherwise, without the preparation of its pictures."""
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(5)
    size = {"image_size": (28, 35), "patch_size": 7, "intermediate_size": 20}
    return sharpened(ViTModel(ViTConfig(**{**SMALL, **size, **config})), folder)


def dino_folder(folder: Path) -> Path:
    """A DINOv2 of 3 x 3 patches with registers, and the preparation of its pictures."""
    from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    torch.manual_seed(7)
    size = {"image_size": 15, "patch_size": 5, "num_register_tokens": 2}
    sharpened(Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**SMALL, **size)), folder)
    told = {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 17},
        "crop_size": {"height": 15, "width": 15},
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "do_resize": True,
        "do_center_crop": True,
        "do_rescale": True,
        "do_normalize": True,
        "rescale_factor": 1 / 255,
        "resample": 3,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(told))
    return folder


def clip_folder(folder: Path) -> Path:
    """The vision tower of a CLIP, of 3 x 3 patches."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    torch.manual_seed(9)
    size = {"image_size": 15, "patch_size": 5, "intermediate_size": 20}
    return sharpened(CLIPVisionModel(CLIPVisionConfig(**SMALL, **size)), folder)
