"""The embedding space: neighbours by the angle between vectors."""

import pytest
import torch

from glasshead.tasks.embedding_space import EmbeddingSpace
from glasshead.tasks.tokenizers.train_tokenizer import characters


@pytest.fixture
def space():
    tokenizer = characters(["abcd"])
    vectors = torch.zeros(tokenizer.vocab_size, 3)
    a, b, c, d = (tokenizer.encode(letter)[0] for letter in "abcd")
    vectors[a] = torch.tensor([2.0, 0.0, 0.0])
    vectors[b] = torch.tensor([1.0, 1.0, 0.0])
    vectors[c] = torch.tensor([0.0, 3.0, 0.0])
    vectors[d] = torch.tensor([-1.0, 0.0, 0.0])
    # The special ones are nobody's neighbours.
    vectors[tokenizer.end_id] = torch.tensor([1.0, 0.0, 0.0])
    return EmbeddingSpace(vectors, tokenizer)


def test_neighbours_are_ordered_by_their_cosine(space):
    near = space.near("a", count=2)
    assert [neighbor.token for neighbor in near] == ["b", "c"]
    assert [neighbor.similarity for neighbor in near] == pytest.approx([0.5**0.5, 0.0])
    assert len(space.near("a", count=99)) == 3


def test_a_word_of_several_tokens_is_told(space):
    with pytest.raises(ValueError, match="'ab' must be a token of this run, but is cut"):
        space.near("ab")


def test_the_plane_keeps_the_largest_spread(space):
    flat = space.flat()
    known = space.vectors[4:]
    spread = torch.linalg.svdvals(known - known.mean(0))[:2]
    assert torch.allclose(flat.norm(dim=0), spread, atol=1e-6)
    assert torch.equal(flat, space.flat())


def test_the_picture_is_png(space):
    assert space.picture("a", space.near("a")).startswith(b"\x89PNG")


def test_signs_of_formulas_are_letters_in_the_picture():
    tokenizer = characters(["$_^\\{"])
    space = EmbeddingSpace(torch.rand(tokenizer.vocab_size, 3), tokenizer)
    assert space.picture("$", space.near("$")).startswith(b"\x89PNG")
