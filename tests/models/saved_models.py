"""Small models of transformers with random weights, saved in folders, and ours beside them."""

import json

import torch

import glasshead as gh


def random(model, seed=0):
    """The model with weights that are no defaults, biases and norms with them."""
    generator = torch.Generator().manual_seed(seed)
    # Gemma's norms multiply by 1 + weight, though transformers 4 begins with weights of one.
    plus_one = model.config.model_type.startswith("gemma")
    with torch.no_grad():
        for parameter in model.parameters():
            one = parameter.ndim == 1 and not plus_one and (parameter == 1).all()
            shift = 1.0 if one else 0.0
            parameter.copy_(shift + 0.3 * torch.randn(parameter.shape, generator=generator))
    model.tie_weights()
    return model.eval()


def saved(model, folder, **how):
    random(model).save_pretrained(folder, **how)
    return folder


def tokens(length=37):
    return torch.randint(31, (2, length), generator=torch.Generator().manual_seed(1))


def assert_same_logits(model, folder, length=37):
    ours = gh.load_pretrained(folder)
    with torch.no_grad():
        expected = model(tokens(length))
        expected = expected.logits if "logits" in expected else expected.last_hidden_state
        found = ours(tokens(length))
    assert expected.abs().max() > 0.5
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    return ours


def changed(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
