"""Toy models for decoding: small enough that every text can be written down."""

import math

import torch

# The hash of a history picks a row of the table: a prime, so that histories spread.
HASHES = 101


class Remembering:
    """Logits that depend on the whole history, which it caches row by row.

    A cache that follows the wrong rows gives other logits than `log_probability`, which reads a
    text from scratch; one of the wrong size raises.
    """

    def __init__(self, vocabulary=5, seed=0, *, table=None):
        generator = torch.Generator().manual_seed(seed)
        self.table = 1.5 * torch.randn(HASHES, vocabulary, generator=generator)
        if table is not None:
            self.table = table
        self.history = None
        self.fed = []
        self.reordered = 0

    def next(self, tokens):
        if self.history is not None and len(tokens) != len(self.history):
            raise RuntimeError(f"{len(tokens)} rows were fed to a cache of {len(self.history)}")
        before = tokens[:, :0] if self.history is None else self.history
        self.history = torch.cat([before, tokens], 1)
        self.fed.append(tuple(tokens.shape))
        return self.table[self._hashed(self.history)]

    def reorder(self, rows):
        assert self.history is not None
        self.history = self.history[rows]
        self.reordered += 1

    def log_probabilities(self, text):
        """ln p of each token after this text, read from scratch."""
        return self.table[self._hashed(torch.tensor([text]))[0]].double().log_softmax(-1)

    def log_probability(self, prompt, tokens):
        return sum(
            float(self.log_probabilities([*prompt, *tokens[:i]])[token])
            for i, token in enumerate(tokens)
        )

    def _hashed(self, history):
        hashed = torch.zeros(len(history), dtype=torch.long)
        for tokens in history.T:
            hashed = (hashed * 31 + tokens.long() + 7) % HASHES
        return hashed


class Chain:
    """A Markov chain: p(next token = j | last token = i) = probabilities[i][j]."""

    def __init__(self, probabilities):
        self.logits = torch.tensor(probabilities).log()

    def next(self, tokens):
        return self.logits[tokens[:, -1]]

    def reorder(self, rows):
        """Nothing is remembered."""


class Fixed:
    """The same logits for each row, whatever it was fed."""

    def __init__(self, logits):
        self.logits = torch.as_tensor(logits)

    def next(self, tokens):
        return self.logits.expand(len(tokens), -1)

    def reorder(self, rows):
        pass


def all_texts(model, prompt, *, max_tokens, end, never=()):
    """Every text, as (tokens, log-probability, ended), its end (one of `end`) not among them."""
    ends, found = end if isinstance(end, tuple) else (end,), []

    def grow(tokens, total):
        if len(tokens) == max_tokens:
            found.append((tokens, total, False))
            return
        following = model.log_probabilities([*prompt, *tokens]).tolist()
        for token, step in enumerate(following):
            if token in never or step == -math.inf:
                continue
            if token in ends:
                found.append((tokens, total + step, True))
            else:
                grow([*tokens, token], total + step)

    grow([], 0.0)
    return found


def best_texts(model, prompt, penalty, **asked):
    """All texts as (tokens, score, ended), those that ended first, the best of each first."""
    scored = [
        (tokens, total / penalty(len(tokens) + ended), ended)
        for tokens, total, ended in all_texts(model, prompt, **asked)
    ]
    return sorted(scored, key=lambda text: (not text[2], -text[1]))
