"""Vectors files: every form that is read, and every fault with its file and line.

Weights files: both forms that are read, and every fault with its file and tensor.
"""

import re

import pytest
import torch
from safetensors.torch import save_file

from glasshead.cli.inputs.tensors import read_weights
from glasshead.cli.inputs.vectors import read_vectors
from glasshead.ladder import SelfAttentionV1, SelfAttentionV2

TOKENS = ("Hello", "sun")


NUMBERS = [[0.34, 0.22, 0.54], [0.29, -0.54, 930.0]]


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v.csv", "Hello,0.34,0.22,0.54\nsun,0.29,-0.54,9.3e2\n"),
        ("v.csv", "Hello,0.34,0.22,0.54\nsun,0.29,-0.54,930"),
        ("v.csv", "Hello, .34, +0.22, 0.54\r\n\r\nsun, 0.29, \u22120.54, 930.\r\n"),
        ("v.csv", "Hello,0.34,0.22,0.54\rsun,0.29,-0.54,930\r"),
        ("v.csv", "\ufeffHello,0.34,0.22,0.54\nsun,0.29,-0.54,930\n"),
        ("v.csv", "\ufefftoken,x,y,z\nHello,0.34,0.22,0.54\nsun,0.29,-0.54,930\n"),
        ("v.csv", '"token","x","y","z"\n"Hello","0.34","0.22","0.54"\n"sun",0.29,-0.54,930\n'),
        ("v.csv", ",0,1,2\nHello,0.34,0.22,0.54\nsun,0.29,-0.54,930\n"),
        ("v.csv", "token,x,y,z,\nHello,0.34,0.22,0.54\nsun,0.29,-0.54,930\n"),
        ("v.csv", "Hello;0.34;0.22;0.54\nsun;0.29;-0.54;930\n"),
        ("v.csv", "palabra;x;y;z\nHello;0,34;0,22;0,54\nsun;0,29;-0,54;9,3e2\n"),
        ("v.tsv", "Hello\t0.34\t0.22\t0.54\nsun\t0.29\t-0.54\t930\n"),
        ("v.tsv", "Hello\t0,34\t0,22\t0,54\nsun\t0,29\t-0,54\t930\n"),
        ("glove.txt", "Hello 0.34 0.22 0.54\nsun  0.29 -0.54 930 \n"),
        ("word2vec.txt", "2 3\nHello 0.34 0.22 0.54\nsun 0.29 -0.54 930\n"),
        ("v.txt", '{"Hello": [0.34, 0.22, 0.54], "sun": [0.29, -0.54, 930]}'),
        ("v.csv", '\n[["Hello", [0.34, 0.22, 0.54]], ["sun", [0.29, -0.54, 930]]]'),
        ("v.json", '{"Hello": [0.34, 0.22, 0.54], "sun": [0.29, -0.54, 930]}'),
        ("v.json", '\ufeff\n[["Hello", [0.34, 0.22, 0.54]],\n["sun", [0.29, -0.54, 930]]]\n'),
        (
            "v",
            (
                ' [{"token": "Hello", "vector": [0.34, 0.22, 0.54]},\n'
                '  {"vector": [0.29, -0.54, 9.3e2], "token": "sun"}]'
            ),
        ),
    ],
)
def test_each_form_gives_the_same_vectors(tmp_path, name, content):
    embeddings = read_vectors(written(tmp_path, name, content))
    assert embeddings.tokens == TOKENS
    assert embeddings.vectors.dtype == torch.float64
    assert embeddings.vectors.tolist() == NUMBERS


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ('",",1.5\n"a,b",2.5\n"say ""hi""",3.5\n', (",", "a,b", 'say "hi"')),
        ("the,1.5\nthe,2.5\n", ("the", "the")),
        (" the,1.5\nthe ,2.5\n", (" the", "the ")),
        ("cafe\u0301,1.5\n", ("caf\u00e9",)),
        ('" 1.5\n, 2.5\n', ('"', ",")),
        ("[,1.5\n{,2.5\n", ("[", "{")),
        ("Token,1,2,3\nHello,4,5,6\n", ("Token", "Hello")),
        ("2 3\n3 4\n", ("2", "3")),
        ("[[ 1.5 2\n{ 2.5 3\n", ("[[", "{")),
        ("width 1,0.5\nof 2,0.25\n", ("width 1", "of 2")),
        ("Hello,1,2,3\nsun,4,5,6\n", ("Hello", "sun")),
        ('"two\nlines",1.5\nb,2.5\n', ("two\nlines", "b")),
    ],
)
def test_tokens_of_a_table_are_kept_as_they_are(tmp_path, content, tokens):
    assert read_vectors(written(tmp_path, "v.csv", content)).tokens == tokens


def test_tokens_of_lists_in_json_may_be_repeated(tmp_path):
    path = written(tmp_path, "v.json", '[["the", [1]], ["the", [2]]]')
    assert read_vectors(path).vectors.tolist() == [[1.0], [2.0]]


def test_a_large_table_is_read_whole(tmp_path):
    rows = "".join(f"w{i},{i}.5,{-i}\n" for i in range(20_000))
    embeddings = read_vectors(written(tmp_path, "v.csv", rows))
    assert embeddings.vectors.shape == (20_000, 2)
    assert embeddings.vectors[-1].tolist() == [19_999.5, -19_999.0]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("v.csv", "", "v.csv has no vectors. Write"),
        ("v.csv", "\n  \n", "v.csv has no vectors"),
        ("v.csv", "token,x,y\n", "v.csv has no vectors"),
        (
            "v.csv",
            "a,1,2\nb,1\n",
            "v.csv, line 2: expected a vector of dimension 2 as on line 1, got 1 for 'b'",
        ),
        (
            "v.csv",
            "t,x,y\na,1,2\n\nb,1,2,3\n",
            "v.csv, line 4: expected a vector of dimension 2 as on line 2",
        ),
        ("v.csv", "a,1,2\nb\n", "v.csv, line 2: expected numbers after 'b', got none"),
        ("v.csv", "Hello shiny sun\n", "v.csv, line 1: expected numbers after 'Hello shiny sun'"),
        ("v.csv", "a,1,2\n,1,2\n", "v.csv, line 2: expected a token, got an empty one"),
        ("v.csv", ",1,2\na,1,2\n", "v.csv, line 1: expected a token, got an empty one"),
        ("v.csv", ",0,1\n,1,2\n", "v.csv, line 1: expected a token, got an empty one"),
        (
            "v.csv",
            "a,1,2,\nb,1,2,\n",
            "got an empty cell at the end. Remove the delimiter there (a comma), or add a",
        ),
        ("v.csv", "a,1\n".encode("utf-16-le"), "v.csv, line 1: expected UTF-8 text, got the "),
        (
            "v.csv",
            "a,1\nb\0,2\n",
            "v.csv, line 2: expected UTF-8 text, got the byte 0x00. Save",
        ),
        (
            "v.csv",
            "a,1\nb," + "1" * 131_073 + "\n",
            "v.csv, line 2: expected cells of at most 131,072 characters, got a longer one",
        ),
        ("v.json", '{"a": 1}', "got 1. Write it in one of them"),
        ("v.json", '{"a": [[1, 2]]}', "expected a number for 'a', got [1, 2]. Write"),
        ("v.csv", "a,1,2\nb,1,x\n", "v.csv, line 2: expected a number for 'b', got 'x'"),
        ("v.csv", "a,1,x\nb,1,2\n", "v.csv, line 1: expected a number for 'a', got 'x'"),
        (
            "v.csv",
            "a,1,\nb,1,\n",
            "v.csv, line 1: expected a number for 'a', got an empty cell",
        ),
        ("v.csv", "a,1,2\nb,1_0,2\n", "v.csv, line 2: expected a number for 'b', got '1_0'"),
        (
            "v.csv",
            "a,1,2\nb,nan,2\n",
            "v.csv, line 2: expected finite numbers, got nan for 'b'",
        ),
        ("v.csv", "a,1,-inf\n", "v.csv, line 1: expected finite numbers, got -inf for 'a'"),
        ("v.csv", "a,1,1e999\n", "v.csv, line 1: expected finite numbers, got inf for 'a'"),
        (
            "v.csv",
            'a,1,2\n"b,1,2\n',
            "v.csv, line 2: the row cannot be read (unexpected end of data)",
        ),
        (
            "v.csv",
            b"a,1,2\nb\xff,1,2\n",
            "v.csv, line 2: expected UTF-8 text, got the byte 0xff",
        ),
        ("v.csv", "a,1\n".encode("utf-16"), "v.csv, line 1: expected UTF-8 text"),
        ("v.json", "", "v.json, line 1: malformed JSON (Expecting value, column 1)"),
        ("v.json", "{}", "v.json has no vectors"),
        ("v.json", "[]", "v.json has no vectors"),
        ("v.json", '{"a": [1,\n 2]\n "b": [1, 2]}', "v.json, line 3: malformed JSON"),
        ("v.json", "3", "v.json, line 1: expected {"),
        ("v.json", '{"a": 1}', "v.json, line 1: expected {"),
        ("v.json", '[["a", [1]],\n ["b", "c", [1]]]', "v.json, line 2: expected {"),
        ("v.json", '[["a", [1]],\n {"token": "b"}]', "v.json, line 2: expected {"),
        ("v.json", "[\n[7, [1]]]", "v.json, line 2: expected {"),
        (
            "v.json",
            '[["a", [1]],\n["b", [1, 2]]]',
            "v.json, line 2: expected a vector of dimension 1 as on line 1",
        ),
        ("v.json", '[["a", [1]],\n["b", []]]', "v.json, line 2: expected numbers after 'b'"),
        (
            "v.json",
            '{"a": [1],\n"b": ["x"]}',
            "v.json, line 2: expected a number for 'b', got \"x\"",
        ),
        ("v.json", '{"a": [true]}', "v.json, line 1: expected a number for 'a', got true"),
        ("v.json", '{"a": [null]}', "v.json, line 1: expected a number for 'a', got null"),
        (
            "v.json",
            '{"a": [1],\n\n"b": [NaN]}',
            "v.json, line 3: expected finite numbers, got nan",
        ),
        (
            "v.json",
            '{"a": [1e999]}',
            "v.json, line 1: expected finite numbers, got inf for 'a'",
        ),
        (
            "v.json",
            '{"a": [%s]}' % ("9" * 5000),
            "v.json, line 1: expected finite numbers, got inf",
        ),
        ("v.json", '{"a": [1],\n"a": [2]}', "v.json, line 2: 'a' stands twice"),
        (
            "v.json",
            "[" * 100_000,
            "v.json, line 1: expected nested lists of numbers, got lists that are nested",
        ),
    ],
)
def test_a_fault_is_named_with_its_file_and_line(tmp_path, name, content, sentence):
    path = written(tmp_path, name, content)
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        read_vectors(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_never_ends_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("glasshead.cli.inputs.files._MOST_BYTES", 10)
    with pytest.raises(ValueError, match="it is larger, or never ends. Keep only what you need"):
        read_vectors(written(tmp_path, "v.csv", "a,1,2,3,4,5\n"))


def test_a_header_that_counts_columns_is_remarked_upon(capsys, tmp_path):
    read_vectors(written(tmp_path, "v.csv", ",0,1\nsun,1,2\n"))
    assert capsys.readouterr().err.startswith("Line 1 of the vectors has no token")
    read_vectors(written(tmp_path, "v.csv", "token,x,y\nsun,1,2\n"))
    assert capsys.readouterr().err == ""


def test_no_more_rows_are_read_than_can_be_used(tmp_path):
    path = written(tmp_path, "v.csv", "a,1\nb,2\nc,3\nd,broken\n")
    with pytest.raises(ValueError, match="v.csv has more than 2 tokens, too many to explain in fu"):
        read_vectors(path, most=2)
    path = written(tmp_path, "v.csv", "a,1\nb,2\n")
    assert read_vectors(path, most=2).tokens == ("a", "b")


ROLES = ("query", "key", "value")


def saved(folder, **tensors):
    path = folder / "w.safetensors"
    save_file({name.replace("__", "."): tensor for name, tensor in tensors.items()}, path)
    return path


def matrices(**others):
    return {f"W_{role}": torch.ones(3, 2) for role in ROLES} | others


@pytest.mark.parametrize("module", [SelfAttentionV1(3, 2), SelfAttentionV2(3, 2, qkv_bias=True)])
def test_the_ladders_own_weights_give_its_projections(tmp_path, module):
    path = tmp_path / "w.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, path)
    x = torch.rand(5, 3, dtype=torch.float64)
    projection = read_weights(path).projection(x)
    module = module.double()
    for role, made in zip(
        ROLES, (projection.queries, projection.keys, projection.values), strict=True
    ):
        weight = getattr(module, f"W_{role}")
        torch.testing.assert_close(
            made, x @ weight if isinstance(weight, torch.Tensor) else weight(x)
        )


def test_half_precision_is_read_and_the_value_may_be_of_another_width(tmp_path):
    path = saved(tmp_path, **matrices(W_value=torch.full((3, 5), 0.5, dtype=torch.bfloat16)))
    read = read_weights(path)
    assert read.d_in == 3
    assert read.tensors["W_value"].shape == (3, 5)
    assert read.tensors["W_value"].dtype == torch.float64


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ({"W_query": torch.ones(3, 2)}, "W_value, got W_query. Rename or add W_key, W_value."),
        (
            {"W_q": torch.ones(3, 2)},
            "the file must have W_query, W_key, W_value, got W_q. Rename or add W_query, W_key, ",
        ),
        (
            matrices(out_proj=torch.ones(2, 2)),
            "in a projection, got also out_proj. Remove",
        ),
        (
            matrices(W_query__bias=torch.ones(2)),
            "in a projection, got also W_query.bias. Remove",
        ),
        (
            matrices(W_key=torch.ones(3, 4)),
            "W_key must have the shape of W_query, [3, 2] as [d_in, d_out]",
        ),
        (
            matrices(W_value=torch.ones(4, 2)),
            "W_value must have the d_in of W_query, 3, got [4, 2]",
        ),
        (matrices(W_key=torch.ones(6)), "W_key must have the shape [d_in, d_out], got [6]"),
        (matrices(W_key=torch.ones(3, 0)), "W_key must have the shape [d_in, d_out], got [3, 0]"),
        (
            matrices(W_key=torch.ones(3, 2, dtype=torch.int64)),
            "W_key must be floating-point numbers, got torch.int64. Convert it with .float().",
        ),
        (
            matrices(W_value=torch.full((3, 2), torch.nan)),
            "W_value must have finite numbers, got NaN",
        ),
        (matrices(W_query=torch.full((3, 2), torch.inf)), "W_query must have finite numbers"),
    ],
)
def test_a_fault_is_named_with_its_file_and_tensor(tmp_path, tensors, sentence):
    path = saved(tmp_path, **tensors)
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        read_weights(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_bias_of_another_width_is_refused(tmp_path):
    linear = {f"W_{role}__weight": torch.ones(2, 3) for role in ROLES}
    path = saved(tmp_path, **linear, W_key__bias=torch.ones(3))
    with pytest.raises(
        ValueError, match="the bias of W_key must have 2 numbers, as its d_out, got 3"
    ):
        read_weights(path)


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", b"\x08" + b"\0" * 7 + b"{}"])
def test_another_kind_of_file_is_refused(tmp_path, content):
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="w.safetensors"):
        read_weights(path)


def test_vectors_of_another_width_are_refused_with_the_file(tmp_path):
    path = saved(tmp_path, **matrices())
    with pytest.raises(
        ValueError, match=re.escape(f"{path}: W_query must be [2, d_out] for vectors of 2")
    ):
        read_weights(path).projection(torch.ones(4, 2, dtype=torch.float64))
