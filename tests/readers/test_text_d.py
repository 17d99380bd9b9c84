"""Text D, a university course in Turkish: words as columns, β, hard attention, heads, lasagna."""

import math

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead import ladder
from readers.journey import WORDS, inputs, traced

X = inputs().T  # a column a word
DIM, WORDS_COUNT = X.shape


def soft_arg_max(scores, beta, dim=0):
    return torch.softmax(beta * scores, dim=dim)


class InColumns(nn.Module):
    """H = XA with A = [soft](arg)max_β(XᵀX), its columns adding up to 1."""

    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, X):
        A = soft_arg_max(X.T @ X, self.beta)
        return X @ A


class ProjectedInColumns(nn.Module):
    """Q = W_q X, K = W_k X, V = W_v X: the matrices stand on the left."""

    def __init__(self, d, d_out):
        super().__init__()
        self.W_q = nn.Parameter(torch.randn(d_out, d))
        self.W_k = nn.Parameter(torch.randn(d_out, d))
        self.W_v = nn.Parameter(torch.randn(d_out, d))

    def forward(self, X):
        Q, K, V = self.W_q @ X, self.W_k @ X, self.W_v @ X
        A = soft_arg_max(K.T @ Q, 1 / math.sqrt(len(Q)))
        return V @ A


class MultiHeadAttention(nn.Module):
    """The class of the course's notebook."""

    def __init__(self, d_model, num_heads, p, d_input=None):
        super().__init__()
        self.num_heads, self.d_model = num_heads, d_model
        d_xq = d_xk = d_xv = d_model if d_input is None else d_input
        assert d_model % num_heads == 0
        self.d_k = d_model // num_heads
        self.W_q = nn.Linear(d_xq, d_model, bias=False)
        self.W_k = nn.Linear(d_xk, d_model, bias=False)
        self.W_v = nn.Linear(d_xv, d_model, bias=False)
        self.W_h = nn.Linear(d_model, d_model)

    def scaled_dot_product_attention(self, Q, K, V):
        Q = Q / math.sqrt(self.d_k)
        scores = torch.matmul(Q, K.transpose(2, 3))
        A = nn.Softmax(dim=-1)(scores)
        return torch.matmul(A, V), A

    def split_heads(self, x, batch_size):
        return x.view(batch_size, -1, self.num_heads, self.d_k).transpose(1, 2)

    def group_heads(self, x, batch_size):
        return x.transpose(1, 2).contiguous().view(batch_size, -1, self.num_heads * self.d_k)

    def forward(self, X_q, X_k, X_v):
        batch_size = X_q.shape[0]
        Q = self.split_heads(self.W_q(X_q), batch_size)
        K = self.split_heads(self.W_k(X_k), batch_size)
        V = self.split_heads(self.W_v(X_v), batch_size)
        H, A = self.scaled_dot_product_attention(Q, K, V)
        return self.W_h(self.group_heads(H, batch_size)), A


@pytest.mark.parametrize("beta", [1.0, DIM**-0.5, 7.0])
def test_columns_are_told_as_the_same_numbers_transposed(beta):
    module = InColumns(beta)
    told = traced(gh.explain(module, X, tokens=WORDS, query="journey", columns=True))
    A = soft_arg_max(X.T @ X, beta)
    torch.testing.assert_close(told["columns"]["A"], A)
    torch.testing.assert_close(told["columns"]["H"], module(X))
    torch.testing.assert_close(told["columns"]["X"], X)
    torch.testing.assert_close(told["weights"]["weights"], A.T)
    torch.testing.assert_close(A.sum(0), torch.ones(WORDS_COUNT))


def test_queries_and_keys_are_told_apart_where_matrices_stand_on_the_left():
    torch.manual_seed(5)
    module = ProjectedInColumns(DIM, 2)
    told = traced(gh.explain(module, X, tokens=WORDS, query="journey"))
    with torch.no_grad():
        torch.testing.assert_close(told["inputs"]["queries"], (module.W_q @ X).T)
        torch.testing.assert_close(told["inputs"]["keys"], (module.W_k @ X).T)
        torch.testing.assert_close(told["context"]["context"], module(X).T)


def test_a_class_of_columns_is_no_layer_of_rows():
    torch.manual_seed(5)
    with pytest.raises(
        ValueError,
        match=r"softmax\(Q Kᵀ / √d\) V of .*, got ProjectedInColumns: it gives another output",
    ):
        gh.MultiHeadAttention.from_module(ProjectedInColumns(DIM, 2))


@pytest.mark.parametrize("beta", [0.0, DIM**-0.5, math.inf])
def test_soft_and_hard_attention_of_one_question(beta):
    x = X[:, 1]
    found = ladder.soft_attention(x, X.T, X.T, beta=beta)
    hard = X[:, (X.T @ x).argmax()]
    expected = hard if beta == math.inf else X @ soft_arg_max(X.T @ x, beta)
    torch.testing.assert_close(found, expected)


def test_the_class_of_the_notebook_is_that_of_the_ladder():
    built = []
    for kind in (MultiHeadAttention, ladder.EncoderMultiHeadAttention):
        torch.manual_seed(0)
        built.append(kind(6, 2, 0.0))
    asked, told = torch.rand(2, 5, 6), torch.rand(2, 7, 6)
    for mine, theirs in zip(built[0](asked, told, told), built[1](asked, told, told), strict=True):
        torch.testing.assert_close(mine, theirs)
    layer = gh.MultiHeadAttention.from_module(built[0])
    torch.testing.assert_close(layer(asked, told), built[0](asked, told, told)[0])


def test_cross_attention_is_explained():
    torch.manual_seed(0)
    module = MultiHeadAttention(6, 2, 0.0)
    asked, told = torch.rand(1, 2, 6), torch.rand(1, 3, 6)
    explanation = gh.explain(
        module, asked, told, told, tokens=["ein", "Haus"], keys=["a", "red", "house"], index=(0, 1)
    )
    _, A = module(asked, told, told)
    torch.testing.assert_close(traced(explanation)["weights"]["weights"], A[0, 1].detach())
    assert explanation.recipe["heads"] == 2


def test_stacked_matrices_are_three():
    """The course stacks W_q, W_k and W_v to one matrix, as the layer of this library does."""
    torch.manual_seed(0)
    module = MultiHeadAttention(6, 2, 0.0)
    stacked = torch.cat([module.W_q.weight, module.W_k.weight, module.W_v.weight])
    layer = gh.MultiHeadAttention.from_module(module)
    assert torch.equal(layer.projections.stacks[0].weight, stacked)


def test_the_lasagna_is_found():
    cookbook = ladder.KeyValueStore(
        ["lasagna", "soup", "pie"],
        ["Layer and bake.", "Simmer.", "Fill and bake."],
        embed=lambda text: torch.tensor([float(w in text) for w in ("lasagna", "soup", "pie")]),
    )
    (best,) = cookbook.ask("how do i make lasagna", beta=math.inf, top=1)
    assert (best.value, best.weight) == ("Layer and bake.", 1.0)


@pytest.mark.parametrize(
    ("accuracy", "printed", "reviews", "exact"),
    [
        (0.8613821138211383, "0.8614", 2_500, "0.8075"),
        (0.8047465589787477, "0.8047", 25_000, "0.7995"),
    ],
)
def test_the_printed_accuracies_are_divided_by_a_batch_too_few(accuracy, printed, reviews, exact):
    """The last index of a loop over batches of 164 is one less than their number."""
    batches = math.ceil(reviews / 164)
    *_, (idx, _) = enumerate(range(batches))
    acc = accuracy * idx
    assert f"{acc / idx:.4f}" == printed
    assert f"{acc / batches:.4f}" == exact
