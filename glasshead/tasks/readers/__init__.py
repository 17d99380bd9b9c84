"""Readers: a model with its tokenizer, from a run folder or one of Hugging Face."""
