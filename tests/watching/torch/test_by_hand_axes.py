"""Axes of a tensor are found again in its views, and products label what they multiply."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.watching.interception.axes import AxisLayout, broadcast, product, reshaped, whole

SHAPE = (2, 3, 5, 7)


def indices(axes, shape):
    """Which index along each axis of the origin every number of a view has, as its axes say."""
    found = [torch.zeros(shape, dtype=torch.long) for _ in SHAPE]
    for place, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        rest = torch.arange(size).reshape([-1 if n == place else 1 for n in range(len(shape))])
        for part in reversed(axis):
            if part.axis >= 0:
                found[part.axis] += rest % part.size * part.inner
            rest = rest // part.size
    return found


def numbered():
    """A tensor for each axis, which holds the index along it."""
    return [
        torch.arange(size).reshape([-1 if n == place else 1 for n in range(4)]).expand(SHAPE)
        for place, size in enumerate(SHAPE)
    ]


MERGES = st.lists(st.booleans(), min_size=3, max_size=3)


def merge(joins):
    """A shape with some neighbouring axes in one."""

    def of(x):
        sizes = [x.shape[0]]
        for size, join in zip(x.shape[1:], joins, strict=True):
            sizes[-1:] = [sizes[-1] * size] if join else [sizes[-1], size]
        return x.view(sizes)

    return of


@given(order=st.permutations(range(4)), joins=MERGES)
def test_axes_are_found_again_where_they_are_merged_and_turned(order, joins):
    def view(x):
        return merge(joins)(x.contiguous()).unsqueeze(0).transpose(0, -1)

    x = torch.zeros(SHAPE).permute(order).contiguous()
    made = view(x)
    # The origin has its axes in another order.
    layout = AxisLayout([whole(SHAPE)[n] for n in order], x.stride())
    axes = layout.axes(made.shape, made.stride())
    for one, other in zip(indices(axes, made.shape), numbered(), strict=True):
        assert one.equal(view(other.permute(order)))


@given(joins=MERGES, copied=MERGES)
def test_a_copy_in_another_shape_is_as_a_view(joins, copied):
    x = torch.zeros(SHAPE)
    first, second = merge(joins)(x), merge(copied)(x)
    axes = AxisLayout(whole(SHAPE), x.stride()).axes(first.shape, first.stride())
    assert reshaped(axes, first.shape, second.shape) == AxisLayout(whole(SHAPE), x.stride()).axes(
        second.shape, second.stride()
    )


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.flatten().unfold(0, 11, 4),
        lambda x: x.as_strided((5, 4, 6), (35, 7, 8)),
        lambda x: x[..., :5],
        lambda x: x[:, ::2],
        lambda x: x.view(2, 3, 7, 5),
    ],
    ids=["overlapping", "diagonal", "cut", "every other", "other rows"],
)
def test_a_view_of_other_numbers_does_not_look_whole(view):
    x = torch.zeros(SHAPE)
    axes = AxisLayout(whole(SHAPE), x.stride()).axes(view(x).shape, view(x).stride())
    parts = sorted(part for axis in axes or () for part in axis)
    assert parts != [part for axis in whole(SHAPE) for part in axis]


def test_a_broadcast_axis_is_none_of_the_origin():
    axes = broadcast(whole((1, 5, 7)), (1, 5, 7), (2, 3, 5, 7))
    (first,), (second,), *rest = axes
    assert first.axis < 0
    assert second.axis < 0
    assert first.axis != second.axis
    assert rest == list(whole((1, 5, 7)))[1:]
    assert broadcast(whole((5, 7)), (5, 7), (7,)) is None
    assert broadcast(whole((5, 7)), (5, 7), (5, 3)) is None


PRODUCTS = {
    "bmm": ("aten::bmm", ((3, 5, 7), (3, 7, 11)), torch.bmm),
    "mm": ("aten::mm", ((5, 7), (7, 11)), torch.mm),
    "mv": ("aten::mv", ((5, 7), (7,)), torch.mv),
    "matrices": ("aten::matmul", ((2, 3, 5, 7), (2, 3, 7, 11)), torch.matmul),
    "one head": ("aten::matmul", ((2, 3, 5, 7), (2, 1, 7, 11)), torch.matmul),
    "one text": ("aten::matmul", ((2, 3, 5, 7), (7, 11)), torch.matmul),
    "more axes": ("aten::matmul", ((3, 5, 7), (2, 3, 7, 11)), torch.matmul),
    "a vector": ("aten::matmul", ((2, 3, 5, 7), (7,)), torch.matmul),
    "a vector first": ("aten::matmul", ((7,), (2, 7, 11)), torch.matmul),
    "linear": ("aten::linear", ((2, 5, 7), (11, 7)), torch.nn.functional.linear),
}
EQUATIONS = {
    "bhid,bhjd->bhij": ((2, 3, 5, 7), (2, 3, 11, 7)),
    "b i d, b j d -> b i j": ((2, 5, 7), (2, 11, 7)),
    "...id,...jd->...ij": ((2, 3, 5, 7), (2, 3, 11, 7)),
    "ibnd,jbnd->bnij": ((5, 2, 3, 7), (11, 2, 3, 7)),
    "ij,jk": ((5, 7), (7, 11)),
}


def multiplied(found):
    """The product by its labels: an outer product, of which shared labels are diagonals."""
    labels = list(dict.fromkeys((*found.labels[0], *found.labels[1])))
    letters = {label: "abcdefghij"[place] for place, label in enumerate(labels)}
    left, right, made = (
        "".join(letters[label] for label in side) for side in (*found.labels, found.made)
    )
    return torch.einsum(f"{left},{right}->{made}", *found.operands)


@pytest.mark.parametrize("name", PRODUCTS)
def test_labels_multiply_as_the_operator_does(name):
    operator, shapes, function = PRODUCTS[name]
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    found = product(operator, inputs)
    # An axis of size 1 that broadcasts is none of the result's, and is summed over alone.
    torch.testing.assert_close(multiplied(found), function(*inputs))
    assert len(found.summed) == 1


@pytest.mark.parametrize("equation", EQUATIONS)
def test_labels_multiply_as_an_equation_says(equation):
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in EQUATIONS[equation]]
    found = product("aten::einsum", [equation, inputs])
    torch.testing.assert_close(multiplied(found), torch.einsum(equation, *inputs))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ii,ij->j", ((5, 5), (5, 7))), ("ijl,jk->ik", ((3, 5, 2), (5, 7))), ("ij->ji", ((3, 5),))],
    ids=["diagonal", "sum of one", "one operand"],
)
def test_an_equation_that_does_more_than_multiply_is_not_told(equation, shapes):
    inputs = [torch.randn(shape) for shape in shapes]
    assert product("aten::einsum", [equation, inputs]) is None
