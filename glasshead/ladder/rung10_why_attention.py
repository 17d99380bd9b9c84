"""Step 10: why attention, a whole sentence through one vector against a look back at each word."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class FixedContext(nn.Module):
    """The context of old: whatever the decoder is about to write, what the encoder ended with.

    **What is new:** nothing yet; this is what there was before attention.

        c_i = h_T

    One vector holds the entire sentence, and it is as wide for forty words as for four. Put as
    attention, all the weight lies on the last word, always.

    Source: Sutskever et al. 2014, section 2; fed to each step of the decoder as in Cho et al.
    2014, section 2.2.

    >>> annotations = torch.rand(3, 7, 5)
    >>> context, weights = FixedContext()(torch.rand(3, 5), annotations)
    >>> torch.equal(context, annotations[:, -1]), weights[0]
    (True, tensor([0., 0., 0., 0., 0., 0., 1.]))
    """

    def forward(
        self,
        state: Float[Tensor, "batch d_model"],
        annotations: Float[Tensor, "batch tokens d_model"],
    ) -> tuple[Float[Tensor, "batch d_model"], Float[Tensor, "batch tokens"]]:
        """Return (context, weights), the same for every ``state``."""
        weights = torch.zeros_like(annotations[..., 0])  # [batch, tokens]
        weights[:, -1] = 1
        return annotations[:, -1], weights


class AttentionContext(nn.Module):
    """The context that attention makes: what is about to be written says where to look.

    **What is new:** the state of the decoder is a query, what the encoder noted at each word is a
    key and a value, and so nothing has to fit into one vector.

        e_ij = v · tanh(W_query s_{i-1} + W_key h_j)
        a_i = softmax(e_i),  c_i = Σ_j a_ij h_j

    This is where attention came from: the score is *additive*, a small network, and not yet the
    dot product of the other steps.

    Args:
        d_model: the width of states and annotations.

    Raises:
        ValueError: states and annotations are not of that width, or not of one batch.

    Source: Bahdanau et al. 2015, section 3.1 and appendix A.1.2, where W_query, W_key and v are
    W_a, U_a and v_a.

    >>> attention = AttentionContext(d_model=5)
    >>> context, weights = attention(torch.rand(3, 5), torch.rand(3, 7, 5))
    >>> context.shape, weights.shape
    (torch.Size([3, 5]), torch.Size([3, 7]))
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.W_query = nn.Linear(d_model, d_model, bias=False)
        self.W_key = nn.Linear(d_model, d_model, bias=False)
        self.v = nn.Parameter(torch.empty(d_model).uniform_(-1, 1) / d_model**0.5)

    def forward(
        self,
        state: Float[Tensor, "batch d_model"],
        annotations: Float[Tensor, "batch tokens d_model"],
    ) -> tuple[Float[Tensor, "batch d_model"], Float[Tensor, "batch tokens"]]:
        """Return (context, weights) for one state of the decoder."""
        batch, _, d_model = annotations.shape
        if d_model != len(self.v) or state.shape != (batch, d_model):
            raise ValueError(
                f"state and annotations must be [batch, {len(self.v)}] and [batch, tokens, "
                f"{len(self.v)}], got {list(state.shape)} and {list(annotations.shape)}. Build "
                "with d_model equal to that of the model."
            )
        query, keys = self.W_query(state), self.W_key(annotations)
        scores = torch.tanh(query[:, None] + keys) @ self.v  # [batch, tokens]
        weights = torch.softmax(scores, dim=-1)
        return (weights[:, None] @ annotations)[:, 0], weights  # [batch, d_model]


class SequenceToSequence(nn.Module):
    """An encoder that reads, and a decoder that writes one word after another.

    **What is new:** two networks with a bridge between them, and the bridge, ``context``, is the
    one thing in which the sequence-to-sequence model of old and that with attention differ.

        h_j = GRU(word x_j, h_{j-1}),  s_0 = h_T
        c_i = context(s_{i-1}, h)
        s_i = GRU([word y_{i-1}, c_i], s_{i-1}),  scores_i = W_out [s_i, c_i] + b_out

    Word 0 is the start, y_0. All sentences of a batch are of one length.

    Args:
        vocab_size: how many words there are, the start among them.
        d_model: the width of words, states and annotations.
        context: the bridge, `FixedContext` or `AttentionContext`.

    Raises:
        ValueError: a source or a target is not ``[batch, tokens]`` with at least one token and
            words from 0 to ``vocab_size - 1``, they are not of one batch, or an answer of fewer
            than 1 word is wanted.

    Source: Bahdanau et al. 2015, sections 2.1 and 3, but the encoder reads in one direction only,
    and the words are scored by one matrix.

    >>> _ = torch.manual_seed(123)
    >>> model = SequenceToSequence(vocab_size=11, d_model=8, context=AttentionContext(d_model=8))
    >>> source, target = sentences_to_reverse(3, length=5, vocab_size=11, seed=123)
    >>> model(source, target).shape
    torch.Size([3, 5, 11])
    >>> model.answer(source, length=5).shape
    torch.Size([3, 5])
    """

    def __init__(self, vocab_size: int, d_model: int, context: nn.Module) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab_size, d_model)
        self.encoder = nn.GRU(d_model, d_model, batch_first=True)
        self.context = context
        self.decoder = nn.GRUCell(2 * d_model, d_model)
        self.output = nn.Linear(2 * d_model, vocab_size)

    def forward(
        self, source: Int[Tensor, "batch tokens"], target: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab_size"]:
        """Return the scores of each word of the target, given the right words before it.

        The decoder is given what it should have written instead of what it wrote, which is called
        *teacher forcing*: it learns each word from the first step on.
        """
        return self._follow(source, target)[0]

    def alignment(
        self, source: Int[Tensor, "batch tokens"], target: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length tokens"]:
        """Return where the decoder looked for each word of the target: rows that sum to 1."""
        return self._follow(source, target)[1]

    @torch.no_grad()
    def answer(
        self, source: Int[Tensor, "batch tokens"], length: int
    ) -> Int[Tensor, "batch length"]:
        """Write ``length`` words, each the likeliest after those written so far."""
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}. Say how long to go on.")
        annotations = self._read(source)
        state, word = annotations[:, -1], torch.zeros_like(source[:, 0])
        written = []
        for _ in range(length):
            scores, state, _ = self._write(word, state, annotations)
            word = scores.argmax(dim=-1)  # [batch]
            written.append(word)
        return torch.stack(written, dim=1)

    def _read(self, source: Tensor) -> Float[Tensor, "batch tokens d_model"]:
        """Return the annotations: at each word, what the encoder knows so far."""
        self._check("source", source)
        return self.encoder(self.words(source))[0]

    def _write(
        self, word: Tensor, state: Tensor, annotations: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take one step: (scores of the next word, the next state, the weights of the context)."""
        context, weights = self.context(state, annotations)
        state = self.decoder(torch.cat([self.words(word), context], dim=-1), state)
        return self.output(torch.cat([state, context], dim=-1)), state, weights

    def _follow(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores and the weights of every step, the decoder told each word before."""
        annotations = self._read(source)
        self._check("target", target)
        if len(target) != len(source):
            raise ValueError(
                f"target must have the batch of source, got {list(target.shape)} for "
                f"{list(source.shape)}. Give each source its target."
            )
        state, start = annotations[:, -1], torch.zeros_like(target[:, :1])
        steps = []
        for word in torch.cat([start, target[:, :-1]], dim=1).unbind(dim=1):
            scores, state, weights = self._write(word, state, annotations)
            steps.append((scores, weights))
        scores, weights = zip(*steps, strict=True)
        return torch.stack(scores, dim=1), torch.stack(weights, dim=1)

    def _check(self, name: str, words: Tensor) -> None:
        if words.ndim != 2 or words.shape[1] < 1:
            raise ValueError(
                f"{name} must be [batch, tokens] with at least one token, got "
                f"{list(words.shape)}. Pass one sentence as {name}[None]."
            )
        strangers = words[(words < 0) | (words >= self.words.num_embeddings)]
        if len(strangers):
            raise ValueError(
                f"{name} must hold words from 0 to {self.words.num_embeddings - 1}, got "
                f"{strangers[0].item()}. Build with the vocabulary that numbered the words."
            )


def sentences_to_reverse(
    count: int, length: int, vocab_size: int, seed: int
) -> tuple[Int[Tensor, "count length"], Int[Tensor, "count length"]]:
    """Return (source, target): random words, and the same words from last to first.

    The easiest of translations, which still wants every word of the source.

    Args:
        count: how many sentences.
        length: how many words in each.
        vocab_size: how many words there are; word 0, the start, is never drawn.
        seed: what makes the sentences; the same seed makes the same.

    Raises:
        ValueError: ``vocab_size`` is less than 2.

    >>> source, target = sentences_to_reverse(1, length=5, vocab_size=11, seed=123)
    >>> torch.equal(source, target.flip(1))
    True
    """
    if vocab_size < 2:
        raise ValueError(f"vocab_size must be at least 2, got {vocab_size}. Word 0 is the start.")
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(1, vocab_size, (count, length), generator=generator)
    return source, source.flip(1)
