"""Tokenizers: encoding texts to token ids, and decoding."""

from glasshead.tasks.tokenizers.pretrained import gpt2, huggingface_tokenizer, llama2c_tokenizer
from glasshead.tasks.tokenizers.tokenizer import (
    SpecialTokens,
    StreamDecoder,
    Tokenizer,
    WholeWords,
    whole_words,
)
from glasshead.tasks.tokenizers.train_tokenizer import characters, train_bpe, train_wordpiece, words
