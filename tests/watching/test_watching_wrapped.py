"""Models that are offloaded, quantized, adapted or sharded by FSDP are seen as they compute."""

import copy

import pytest
import torch
from torch import nn

import glasshead as gh

transformers = pytest.importorskip("transformers")

HEADS, WIDTH, LENGTH, VOCAB = 6, 8, 13, 101
TOKENS = torch.arange(2 * LENGTH).reshape(2, LENGTH) * 29 % VOCAB
NAMES = [f"model.layers.{layer}.self_attn" for layer in range(3)]
STATISTICS = [gh.Entropy(), gh.Received(), gh.MaxScore()]
OFFLOADED = {
    "model.embed_tokens": "cpu",
    "model.layers.0": "disk",
    "model.layers.1": "cpu",
    "model.layers.2": "disk",
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
    "lm_head": "disk",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("llama")
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HEADS * WIDTH,
        intermediate_size=34,
        num_hidden_layers=len(NAMES),
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    transformers.LlamaForCausalLM(config).double().save_pretrained(place)
    return place


def llama(folder, dtype=torch.float64, **options):
    return transformers.LlamaForCausalLM.from_pretrained(folder, dtype=dtype, **options).eval()


def watched(model, tokens=TOKENS):
    """What is seen of a pass, whose logits are those of the unwatched one, bit for bit."""
    with torch.no_grad():
        plain = model(tokens).logits
        with gh.watch(model, STATISTICS, keep="weights") as seen:
            logits = model(tokens).logits
    assert torch.equal(logits, plain)
    return seen


def values(seen):
    layers = seen.values()
    return [[*(layer[one] for one in STATISTICS), layer.weights.dense()] for layer in layers]


def assert_close(found, expected, tolerance=1e-12):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("way", ["to the CPU", "to disk", "by a map", "by itself"])
def test_accelerate_offloads(way, folder, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    model = {
        "to the CPU": lambda: accelerate.cpu_offload(llama(folder), execution_device="cpu"),
        "to disk": lambda: accelerate.disk_offload(llama(folder), tmp_path, execution_device="cpu"),
        "by a map": lambda: llama(folder, device_map=OFFLOADED, offload_folder=tmp_path),
        "by itself": lambda: llama(folder, device_map="auto"),
    }[way]()
    seen = watched(model)
    assert list(seen) == NAMES
    assert_close(values(seen), values(watched(llama(folder))))


def test_a_corpus_is_read_by_a_model_on_disk(folder, tmp_path):
    from glasshead.tasks.tokenizers import words

    accelerate = pytest.importorskip("accelerate")
    texts = ["the cat sat on the mat", "the dog sat on the cat"]
    model = accelerate.disk_offload(llama(folder), tmp_path, execution_device="cpu")
    tokenizer = words(texts, vocab_size=17)
    found, expected = (
        gh.observe_texts(one, texts, [gh.Entropy(), gh.Received()], tokenizer=tokenizer, length=5)
        for one in (model, llama(folder))
    )
    for name in NAMES:
        assert_close(found[name].entropy, expected[name].entropy)
        assert_close(found[name].received, expected[name].received)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("adapter", ["of low rank", "merged", "switched off"])
def test_adapters(adapter, folder):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=3, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(llama(folder), config).eval()
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    merged = copy.deepcopy(model).merge_and_unload()
    if adapter == "switched off":
        with model.disable_adapter():
            seen, expected = watched(model), watched(llama(folder))
    else:
        seen = watched(merged if adapter == "merged" else model)
        expected = watched(merged)
        assert not torch.allclose(values(seen)[0][0], values(watched(llama(folder)))[0][0])
    prefix = "" if adapter == "merged" else "base_model.model."
    assert list(seen) == [f"{prefix}{name}" for name in NAMES]
    assert_close(values(seen), values(expected))


class FourBit(nn.Module):
    """A linear layer of whole numbers from -8 to 7, two in a byte, scaled by rows."""

    scale: torch.Tensor
    packed: torch.Tensor

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 7
        numbers = (linear.weight.detach() / scale).round().to(torch.int8) + 8
        self.register_buffer("scale", scale)
        self.register_buffer("packed", (numbers[:, ::2] * 16 + numbers[:, 1::2]).to(torch.uint8))

    def weight(self):
        numbers = torch.stack([self.packed >> 4, self.packed & 15], -1).flatten(1)
        return (numbers.to(self.scale) - 8) * self.scale

    def forward(self, x):
        return nn.functional.linear(x, self.weight())


def replaced(model, layer):
    """The model with each projection of its layers replaced."""
    for module in [*model.model.modules()]:
        for name, child in [*module.named_children()]:
            if isinstance(child, nn.Linear):
                setattr(module, name, layer(child))
    return model


def test_four_bits_in_code_of_ones_own(folder):
    model, plain = replaced(llama(folder), FourBit), llama(folder)
    with torch.no_grad():
        for module in plain.model.modules():
            if isinstance(module, nn.Linear):
                module.weight.copy_(FourBit(module).weight())
    seen = watched(model)
    assert list(seen) == NAMES
    assert_close(values(seen), values(watched(plain)))


def dynamic(model):
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def bitsandbytes(model):
    library = pytest.importorskip("bitsandbytes")

    def four_bit(linear):
        made = library.nn.Linear4bit(
            linear.in_features, linear.out_features, bias=False, compute_dtype=torch.float32
        )
        made.weight = library.nn.Params4bit(linear.weight.data, requires_grad=False)
        return made

    return replaced(model, four_bit).to("cpu")


def torchao(config):
    def quantize(model):
        library = pytest.importorskip("torchao.quantization")
        given = {"weight_dtype": torch.int4} if config == "IntxWeightOnlyConfig" else {}  # type: ignore[reportAttributeAccessIssue]
        library.quantize_(model, getattr(library, config)(**given))
        return model

    return quantize


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "quantize",
    [
        pytest.param(dynamic, id="int8 by PyTorch"),
        pytest.param(bitsandbytes, id="4 bits by bitsandbytes"),
        pytest.param(torchao("Int8DynamicActivationInt8WeightConfig"), id="int8 by torchao"),
        pytest.param(torchao("Int8WeightOnlyConfig"), id="int8 weights by torchao"),
        pytest.param(torchao("IntxWeightOnlyConfig"), id="4 bits by torchao"),
    ],
)
def test_quantized_weights(quantize, folder):
    model = quantize(llama(folder, torch.float32))
    eager = quantize(llama(folder, torch.float32, attn_implementation="eager"))
    with torch.no_grad():
        attentions = eager(TOKENS, output_attentions=True).attentions
    seen = watched(model)
    assert list(seen) == NAMES
    # Activations that are rounded to whole numbers round apart in later layers.
    assert_close(seen[NAMES[0]].weights.dense(), attentions[0], 1e-5)
    assert_close(seen[NAMES[0]].received, attentions[0].sum(-2), 1e-5)


def sharded(rank, folder):
    """A row of a batch on each rank, by models whose weights are spread over both."""
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    def by_layers(model, *within):
        for layer in model.model.layers:
            for name in within:
                fully_shard(layer.get_submodule(name))
            fully_shard(layer)
        return fully_shard(model)

    def wrapped(model):
        policy = ModuleWrapPolicy({LlamaDecoderLayer})
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, device_id=torch.device("cpu")
        )

    projections = [f"self_attn.{name}_proj" for name in "qkvo"]
    models = {
        "fully_shard": by_layers(llama(folder)),
        "fully_shard of each projection": by_layers(llama(folder), *projections),
        "FullyShardedDataParallel": wrapped(llama(folder)),
    }
    found = {}
    for name, model in models.items():
        seen = watched(model, TOKENS[rank : rank + 1])
        with gh.watch(model, keep="gradients") as graded:
            model(TOKENS[rank : rank + 1]).logits[:, -1, 7].sum().backward()
        heads = [call.heads for call in seen.gather()[NAMES[1]]]
        found[name] = list(seen), values(seen), graded[NAMES[1]].gradients.dense(), heads
    return found


@pytest.fixture(scope="module")
def ranks(of_ranks, folder):
    return of_ranks(sharded, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", ["fully_shard", "fully_shard of each projection", "FullyShardedDataParallel"]
)
def test_weights_that_ranks_share_and_collect_are_seen_whole(way, ranks, folder):
    model = llama(folder)
    for rank, found in enumerate(ranks):
        names, numbers, gradients, heads = found[way]
        assert (names, heads) == (NAMES, [None])
        assert_close(numbers, values(watched(model, TOKENS[rank : rank + 1])))
        with gh.watch(model, keep="gradients") as graded:
            model(TOKENS[rank : rank + 1]).logits[:, -1, 7].sum().backward()
        assert_close(gradients, graded[NAMES[1]].gradients.dense())
