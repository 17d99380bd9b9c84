"""Models of others: they write what transformers and llama2.c write."""

import shutil

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from glasshead.models.decoding import Beam, Greedy, Sampling
from glasshead.tasks.tokenizers.pretrained import huggingface_tokenizer
from glasshead.tasks.write import Writer, evaluate
from pretrained_folders import TOKENS, llama2c_files, llama_folder, packed, tokenizer_files

PROMPTS = ["abc ab", "", "ca é bab aab", "c"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return llama_folder(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def writer(folder):
    return Writer.load(folder)


def of_transformers(folder, prompts, **asked):
    """The texts of `generate`, prompts padded at the left by a token that no text has."""
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", pad_token="<0x00>")
    model = LlamaForCausalLM.from_pretrained(folder)
    # What stands for nothing; ours are never chosen either.
    unused = list(range(len(TOKENS), model.config.vocab_size))
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    found = model.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        pad_token_id=tokenizer.pad_token_id,
        suppress_tokens=unused,
        do_sample=False,
        **asked,
    )
    length = inputs["input_ids"].shape[1]
    texts = []
    for prompt, row in zip(prompts, found.tolist(), strict=True):
        shown = tokenizer(prompt)["input_ids"]
        tokens = row[length:]
        ends = [tokens.index(end) for end in (2, 262) if end in tokens]
        # Half a character is one "�" here, and several there.
        whole = huggingface_tokenizer(folder).decode([*shown, *tokens[: min(ends, default=None)]])
        texts.append(whole[len(prompt) :])
    return texts


@pytest.mark.parametrize("penalty", [1.0, 1.3, 0.8])
def test_greedy_texts_are_those_of_transformers(folder, writer, penalty):
    greedy = Greedy(repetition_penalty=penalty)
    asked = {"max_new_tokens": 23, "repetition_penalty": penalty}
    # One by one, as older versions repeat what pads a prompt.
    expected = [text for one in PROMPTS for text in of_transformers(folder, [one], **asked)]
    assert writer.write_all(PROMPTS, greedy, max_tokens=23) == expected
    assert ["".join(writer.write(x, greedy, max_tokens=23)) for x in PROMPTS] == expected
    assert len(set(expected)) == 4


def test_beams_are_those_of_transformers(folder, writer):
    expected = of_transformers(folder, PROMPTS[:1], max_new_tokens=7, num_beams=3)
    assert writer.write_all(PROMPTS[:1], Beam(3), max_tokens=7) == expected


def test_what_has_no_token_is_never_written(writer):
    texts = writer.write_all([""] * 29, Sampling(9.0, seed=1), max_tokens=29)
    assert len(set(texts)) == 29
    assert writer.model.config.vocab_size == len(TOKENS) + 3


@pytest.mark.parametrize("name", ["model.bin", ""])
def test_a_file_of_llama2c_writes_with_the_tokenizer_beside_it(tmp_path, name):
    file = llama2c_files(tmp_path / "model")
    writer = Writer.load(tmp_path / "model" / name)
    assert writer.tokenizer.vocab_size == len(TOKENS)
    prompt, tokens = "abc", [1, *writer.tokenizer.encode("abc")]
    model = Writer.load(file).model
    for _ in range(7):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    expected = writer.tokenizer.decode(tokens)[len(prompt) :]
    ended = {1, 2} & set(tokens[1:])
    assert not ended
    assert "".join(writer.write(prompt, Greedy(), max_tokens=7)) == expected


def test_the_stories_of_the_published_model(data_folder):
    stories = data_folder / "stories260K"
    published = (stories / "stories260K.md").read_text().split("-t 0.0\n")[1].split("\n```")[0]
    writer = Writer.load(stories / "stories260K.bin")
    assert "".join(writer.write("", Greedy(), max_tokens=256)) == published
    writer = Writer.load(stories)
    begun = "Once upon a time, there was"
    first = begun + "".join(writer.write(begun, Greedy(), max_tokens=256, stop=["park. One"]))
    assert first == published.split("park. One")[0]


def test_a_model_of_others_is_evaluated_on_files(writer, tmp_path):
    (tmp_path / "text.txt").write_text("abc ab é bab")
    assert evaluate(writer, [str(tmp_path / "text.txt")])["loss"] > 0
    with pytest.raises(ValueError, match=r"text\. Name a FILE to evaluate on"):
        evaluate(writer)


def bert(folder):
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=37, hidden_size=12, num_hidden_layers=1, num_attention_heads=3,
        intermediate_size=8,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)


def large_tokenizer(folder):
    llama_folder(folder, vocab_size=len(TOKENS) - 1)


def without_tokenizer(folder):
    llama_folder(folder)
    (folder / "tokenizer.json").unlink()


def pickled(folder):
    llama_folder(folder)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def lonely(folder):
    llama2c_files(folder)
    (folder / "tok.bin").unlink()


def several_tokenizers(folder):
    llama2c_files(folder)
    (folder / "tok2.bin").write_bytes(packed())


def several_models(folder):
    shutil.copy(llama2c_files(folder), folder / "other.bin")


def other_tokenizer(folder):
    llama2c_files(folder)
    (folder / "tok.bin").write_bytes(packed([*TOKENS, ("zz", -99.0)]))


def smaller_tokenizer(folder):
    llama2c_files(folder)
    (folder / "tok.bin").write_bytes(packed(TOKENS[:-1]))


def only_tokenizer(folder):
    tokenizer_files(folder)


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (bert, ValueError, "must be"),
        (large_tokenizer, ValueError, f"has {len(TOKENS)} tokens, and the model {len(TOKENS) - 1}"),
        (without_tokenizer, FileNotFoundError, "has no tokenizer: there is neither a tokenizer"),
        (pickled, ValueError, "pytorch_model.bin"),
        (lonely, FileNotFoundError, r"such as tok512.bin, got none\. Put the one there"),
        (several_tokenizers, FileNotFoundError, "next to it, .* got tok.bin, tok2.bin"),
        (several_models, ValueError, "has several models, such as model.bin and other.bin. Name"),
        (other_tokenizer, ValueError, f"has {len(TOKENS) + 1} tokens, and the model {len(TOKENS)}"),
        (smaller_tokenizer, ValueError, f"has {len(TOKENS) - 1} tokens, and the model "),
        (only_tokenizer, FileNotFoundError, "has no run: there is no config.json in it"),
    ],
)
def test_what_does_not_write_is_told(tmp_path, make, kind, said):
    make(tmp_path / "model")
    with pytest.raises(kind, match=said) as raised:
        Writer.load(tmp_path / "model")
    assert "\n" not in str(raised.value)


def test_a_prompt_that_has_no_token_is_told(tmp_path):
    llama_folder(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text().replace('"byte_fallback": true', '"byte_fallback": false'))
    with pytest.raises(
        ValueError, match=r"the prompt has 'x', which no token stands for\. Omit it"
    ):
        Writer.load(tmp_path).write("ab x", Greedy(), max_tokens=1)
