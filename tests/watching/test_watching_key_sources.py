"""Cross-attention is known by where keys come from, and not by how many they are."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
import watched_models as models

BATCH, TEXT, MEMORY, WIDTH, HEADS = 2, 7, 3, 10, 2
# Of the tokens of the second text.
REAL = 5


def in_heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def by_sdpa(query, key, value, mask):
    return F.scaled_dot_product_attention(query, key, value, mask)


def by_hand(query, key, value, mask):
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ value


class Core(nn.Module):
    """A module that is given queries, keys and values, and does not know where they come from."""

    def forward(self, query, key, value, mask):
        return by_sdpa(query, key, value, mask)


class Projected(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.memory = nn.Parameter(torch.randn(1, MEMORY, WIDTH))
        self.attend = attend

    def attended(self, x, source, mask=None):
        inputs = in_heads(self.query(x)), in_heads(self.key(source)), in_heads(self.value(source))
        return self.attend(*inputs, mask).transpose(1, 2).flatten(2)


class WithMemory(Projected):
    def forward(self, x, attention_mask=None):
        source = torch.cat([self.memory.expand(len(x), -1, -1), x], 1)
        mask = None
        if attention_mask is not None:
            mask = F.pad(attention_mask.bool(), (MEMORY, 0), value=True)[:, None, None]
        return self.attended(x, source, mask)


class MemoryAfter(Projected):
    def forward(self, x):
        return self.attended(x, torch.cat([x, self.memory.expand(len(x), -1, -1)], 1))


class OnAnother(Projected):
    def forward(self, x, source):
        return self.attended(x, source)


class OnBoth(Projected):
    def forward(self, latents, source):
        return self.attended(latents, torch.cat([source, latents], 1))


class OnFewer(Projected):
    def forward(self, x):
        return self.attended(x, F.avg_pool1d(x.mT, 3).mT)


class Named(Projected):
    def forward(self, x, encoder_hidden_states=None):
        return self.attended(x, x if encoder_hidden_states is None else encoder_hidden_states)


def text(length=TEXT):
    return torch.randn(BATCH, length, WIDTH)


def only_call(model, *inputs, **named):
    with gh.watch(model, [gh.Received(), gh.MeanDistance()], keep="weights") as seen:
        model(*inputs, **named)
    (watched,) = seen.values()
    (call,) = watched
    return call


WAYS = {"sdpa": by_sdpa, "explicit": by_hand, "inner module": Core()}


@pytest.mark.parametrize("way", WAYS)
def test_keys_of_a_memory_stand_before_the_text_that_attends_to_itself(way):
    call = only_call(WithMemory(WAYS[way]), text())
    assert (call.crossing, call.queries, call.keys) == (False, TEXT, TEXT + MEMORY)
    distance = (torch.arange(MEMORY, TEXT + MEMORY)[:, None] - torch.arange(call.keys)).abs()
    expected = (call.weights.dense() * distance).sum(-1)
    torch.testing.assert_close(call.mean_distance, expected)


@pytest.mark.parametrize("way", WAYS)
def test_keys_of_a_memory_after_the_text_are_found_by_being_the_same_in_each_row(way):
    call = only_call(MemoryAfter(WAYS[way]), text())
    assert (call.crossing, call.queries, call.keys) == (False, TEXT, TEXT + MEMORY)
    distance = (torch.arange(TEXT)[:, None] - torch.arange(call.keys)).abs()
    torch.testing.assert_close(call.mean_distance, (call.weights.dense() * distance).sum(-1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [WithMemory, MemoryAfter])
def test_distances_to_a_memory_of_one_text_are_refused(way, kind):
    call = only_call(kind(WAYS[way]), text()[:1])
    torch.testing.assert_close(call.received, call.weights.dense().sum(-2))
    with pytest.raises(ValueError, match="more keys than tokens, and whether the others stand be"):
        _ = call.mean_distance


@pytest.mark.parametrize("way", WAYS)
def test_padding_of_a_text_with_a_memory_is_found_in_its_own_mask(way):
    mask = (torch.arange(TEXT) < torch.tensor([[TEXT], [REAL]])).long()
    call = only_call(WithMemory(WAYS[way]), text(), attention_mask=mask)
    assert call.real.equal(mask.bool())
    torch.testing.assert_close(call.received.sum(-1), torch.tensor([[7.0, 7.0], [5.0, 5.0]]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kind", "given"),
    [(OnAnother, [TEXT, 11]), (OnAnother, [TEXT, 3]), (OnBoth, [TEXT, 11]), (OnFewer, [TEXT])],
)
def test_keys_of_another_text_cross(way, kind, given):
    assert only_call(kind(WAYS[way]), *map(text, given)).crossing


@pytest.mark.parametrize("way", [by_sdpa, by_hand])
def test_another_text_of_the_same_length_is_known_by_the_name_that_transformers_gives_it(way):
    model, x = Named(way), text()
    assert not only_call(model, x).crossing
    assert not only_call(model, x, encoder_hidden_states=x).crossing
    assert only_call(model, x, encoder_hidden_states=text()).crossing
    assert only_call(model, text(1), encoder_hidden_states=text()).crossing


def test_cross_attention_after_layers_that_were_left_out_has_their_position():
    config = gh.TranslatorConfig(vocab_size=11, d_model=WIDTH, num_heads=2, num_layers=1)
    model, cache = gh.Translator(config).eval(), gh.KVCache()
    lengths = torch.tensor([TEXT, TEXT])
    asked = {"layers": "decoder.0.cross_attention"}
    with torch.no_grad(), gh.watch(model, [gh.Entropy()], **asked) as seen:
        encoded = model.encode(torch.randint(11, (2, TEXT)), lengths)
        for new in (3, 1):
            model.decode(torch.randint(11, (2, new)), encoded, lengths, cache=cache)
    assert [call.position for call in seen["decoder.0.cross_attention"]] == [0, 3]


def nllb_moe(attention):
    import transformers

    sizes = {"vocab_size": models.VOCABULARY, "d_model": 30, "encoder_layers": 1}
    sizes |= {"decoder_layers": 2, "encoder_attention_heads": 5, "decoder_attention_heads": 3}
    sizes |= {"encoder_ffn_dim": 29, "decoder_ffn_dim": 29, "num_experts": 3, "init_std": 0.4}
    sizes |= {"encoder_sparse_step": 2, "decoder_sparse_step": 2, "eos_token_id": None}
    config = transformers.NllbMoeConfig(**sizes, decoder_start_token_id=1, pad_token_id=0)
    return models.built(transformers.NllbMoeForConditionalGeneration, config, attention)


def bert_that_writes(attention):
    import transformers

    given = {"vocab_size": models.VOCABULARY, "hidden_size": 35, "num_hidden_layers": 2}
    given |= {"num_attention_heads": 5, "intermediate_size": 29, "is_decoder": True}
    config = transformers.BertConfig(**given, initializer_range=0.4, eos_token_id=None)
    return models.built(transformers.BertLMHeadModel, config, attention)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("build", "name"),
    [(nllb_moe, "model.decoder.layers.1.self_attn"), (bert_that_writes, "bert.encoder.layer.1")],
)
def test_steps_of_a_decoder_attend_to_their_own_text(build, name, attention):
    pytest.importorskip("transformers")
    model, prompt = build(attention), models.tokens(2, 5)
    with torch.no_grad(), gh.watch(model, [gh.Received()], layers=f"{name}*") as seen:
        model.generate(prompt, max_new_tokens=4, do_sample=False)
    (watched,) = seen.values()
    first = 5 if build is bert_that_writes else 1
    places = [(call.position, call.keys, call.crossing) for call in watched]
    assert places == [(0, first, False), *((n, n + 1, False) for n in range(first, first + 3))]
    assert len(watched.texts) == 1


PREFIX = 4
ADAPTERS = {
    "prefix": ("PrefixTuningConfig", {"num_virtual_tokens": PREFIX}),
    "prompt": ("PromptTuningConfig", {"num_virtual_tokens": PREFIX}),
    "p-tuning": ("PromptEncoderConfig", {"num_virtual_tokens": PREFIX, "encoder_hidden_size": 7}),
    "lora": ("LoraConfig", {}),
    "ia3": ("IA3Config", {}),
}


def adapted(task, adapter, attention):
    """A model with an adapter of peft, random as its own weights are."""
    peft = pytest.importorskip("peft")
    import transformers

    if task == "SEQ_CLS":
        config = models.bert(attention).config
        model = models.built(transformers.BertForSequenceClassification, config, attention)
    else:
        model = (models.gpt2 if task == "CAUSAL_LM" else models.bart)(attention)
    kind, asked = ADAPTERS[adapter]
    model = peft.get_peft_model(model, getattr(peft, kind)(task_type=task, **asked)).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, 0.0, 0.3)
    return model


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("task", ["SEQ_CLS", "CAUSAL_LM", "SEQ_2_SEQ_LM"])
def test_adapters_add_keys_before_a_text_and_change_nothing_else(task, adapter, attention):
    model, tokens = adapted(task, adapter, attention), models.tokens(BATCH, TEXT)
    mask = (torch.arange(TEXT) < torch.tensor([[TEXT], [REAL]])).long()
    given = {"input_ids": tokens, "attention_mask": mask}
    if task == "SEQ_2_SEQ_LM":
        given["decoder_input_ids"] = models.tokens(BATCH, 5)
    with torch.no_grad():
        alone = model(**given).logits
        with gh.watch(model, [gh.Received()]) as seen:
            assert torch.equal(model(**given).logits, alone)
    added = PREFIX if adapter in ("prefix", "prompt", "p-tuning") else 0
    kept = PREFIX if adapter == "prefix" else 0
    for name, (call,) in seen.items():
        decodes, crosses = ".decoder." in name, "encoder_attn" in name
        # Prompts go to the encoder, prefixes to the decoder of a translator.
        own = task != "SEQ_2_SEQ_LM" or decodes == bool(kept)
        before = kept if own else 0
        read = (5 if decodes else TEXT) + (added - before if own else 0)
        keys = TEXT + added - kept if crosses else before + read
        assert (call.position, call.queries, call.keys, call.crossing) == (
            before,
            read,
            keys,
            crosses,
        ), name
        if not decodes:
            rows = torch.tensor([read, read - (TEXT - REAL)]).float()
            expected = rows[:, None].expand(call.received.shape[:2])
            torch.testing.assert_close(call.received.sum(-1), expected)
