"""Tokenizing: texts as numbers of tokens, and back."""

from glasshead.tasks.tokenizing.gpt2 import gpt2
from glasshead.tasks.tokenizing.making import characters, train_bpe, train_wordpiece, words
from glasshead.tasks.tokenizing.of_huggingface import huggingface_tokenizer
from glasshead.tasks.tokenizing.of_llama2c import llama2c_tokenizer
from glasshead.tasks.tokenizing.special import SpecialTokens
from glasshead.tasks.tokenizing.streaming import StreamDecoder
from glasshead.tasks.tokenizing.tokenizer import Tokenizer
from glasshead.tasks.tokenizing.whole_words import WholeWords, whole_words
