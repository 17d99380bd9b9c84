"""Reading the user's files: exact characters, and rows as they are written."""

import csv
import gzip
import io
import json
import lzma
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from glasshead.drawing.printable import as_command
from glasshead.tasks.data import files
from glasshead.tasks.data import tables as rows
from glasshead.tasks.data.columns import check_columns, found_columns
from glasshead.tasks.data.files import SETTING
from glasshead.tasks.data.tables import read_rows
from glasshead.tasks.data.texts import read_lines, read_texts
from hypothesis_profiles import examples

PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
# What a file may hold; NUL is refused, and half a character is no UTF-8.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=7)


@pytest.fixture
def file(tmp_path):
    """A file with some content, packed as its name says."""

    def written(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](data))
        return path

    return written


def as_csv(header, table, delimiter):
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([header, *table])
    return out.getvalue()


@pytest.mark.parametrize("packing", PACK)
def test_plain_text_keeps_every_character(file, packing):
    text = " One\r\ntwo\n\n\tthree\rfour\u2028\x0cfive ☀\n\n"
    assert read_texts(file(f"a.txt{packing}", text)) == [text]


def test_a_byte_order_mark_is_no_text(file):
    assert read_texts(file("a.txt", b"\xef\xbb\xbfsun")) == ["sun"]
    assert read_texts(file("a.csv", b"\xef\xbb\xbftext\nsun\n")) == ["sun"]
    assert read_texts(file("a.jsonl", b'\xef\xbb\xbf{"text": "sun"}\n')) == ["sun"]


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv"])
def test_tables_of_each_kind_are_read(file, ending, packing):
    texts = ["2020-01-01", "007, NA", 'she "said"\nso', "☀ 1e3"]
    numbered = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    table = (
        "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts))
        if ending == "jsonl"
        else as_csv(
            ["id", "text"], [row.values() for row in numbered], {"csv": ","}.get(ending, "\t")
        )
    )
    path = file(f"odd[1]*::name.{ending}{packing}", table)
    assert read_texts([path, path]) == texts * 2
    assert read_rows(path, ["text", "id"]) == [(row["text"], row["id"]) for row in numbered]


ONE_TABLE = st.integers(1, 3).flatmap(
    lambda width: st.lists(
        st.lists(TEXT.filter(lambda cell: cell.strip()), min_size=width, max_size=width),
        min_size=1,
        max_size=5,
    )
)


@given(ONE_TABLE, st.sampled_from([".jsonl", ".csv", ".tsv"]))
@example([["2020-01-01"]], ".jsonl")
@example([["a\rb", "c\r\nd"]], ".csv")
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_written_is_read(tmp_path, table, ending):
    names = ["text", "label", "by"][: len(table[0])]
    expected = [dict(zip(names, row, strict=True)) for row in table]
    content = (
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in expected)
        if ending == ".jsonl"
        else as_csv(names, table, "," if ending == ".csv" else "\t")
    )
    path = tmp_path / f"table{ending}"
    path.write_bytes(content.encode())
    assert read_rows(path, names) == [tuple(row) for row in table]


def test_odd_tables_are_read_as_they_are_written(file):
    # Mixed numbers and texts; a name for the rows; empty cells; a date among dates.
    mixed = file("a.jsonl", '{"label": "0", "x": 1}\n\n{"label": 1}\n{"label": true}\n')
    assert read_rows(mixed, ["label"]) == [("0",), ("1",), ("true",)]
    unnamed = file("b.csv", ",text\n0,sun\n1,\n")
    assert read_texts(unnamed) == ["sun", ""]
    dates = file("c.jsonl", '{"text": "2020-01-01T00:00:00"}\n{"text": "2021-01-01"}\n')
    assert read_texts(dates) == ["2020-01-01T00:00:00", "2021-01-01"]
    assert read_texts(file("d.csv", "text\n\nsun\n \nmoon\n")) == ["sun", "moon"]
    long = "x" * 200_000
    assert read_texts(file("e.csv", f"text,id\n{long},\n")) == [long]


def test_the_column_is_text_or_the_only_one_or_asked_for(file):
    assert read_texts(file("a.csv", "other,text\n1,sun\n")) == ["sun"]
    assert read_texts(file("b.jsonl", '{"review": "sun"}')) == ["sun"]
    two = file("c.tsv", "review\tby\nsun\tme\n")
    assert read_texts(two, field="review") == ["sun"]
    with pytest.raises(
        ValueError, match=r"c\.tsv has no column 'text', but 'review', 'by'\. Choose"
    ):
        read_texts(two)
    with pytest.raises(
        ValueError, match=r"c\.tsv has no column 'title', but 'review', 'by'\. Name"
    ):
        read_texts(two, field="title")


@pytest.mark.parametrize("packing", PACK)
def test_lines_are_kept_beside_those_of_another_file(file, packing):
    content = "one\r\n\ntwo\rhalf\u2028three\x0c\n"
    assert read_lines(file(f"train.de{packing}", content)) == [
        "one",
        "",
        "two\rhalf\u2028three\x0c",
    ]
    assert read_lines(file("a.en", "no end")) == ["no end"]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        (
            "a.jsonl",
            '{"text": "a"}\n\n{"text": "b"\n',
            r"a\.jsonl, line 3: .* invalid JSON \(Exp",
        ),
        ("a.jsonl", '{"text": "a"}\n["b"]\n', "line 2: expected a JSON object.* got a list"),
        ("a.jsonl", '{"text": "a"}\n{"txt": "b"}\n', "line 2: expected 'text', got a row without"),
        ("a.jsonl", '{"text": "a"}\n{"text": null}\n', "line 2: expected a text as 'text'.* null"),
        ("a.jsonl", '{"text": "a"}\n{"text": 5}\n', "line 2: expected a text as 'text'.* a number"),
        ("a.jsonl", '{"text": 4}\n{"text": 5}\n', "line 1: expected a text as 'text'.* a number"),
        ("a.jsonl", '{"text": ["a"]}\n', "line 1: expected a text as 'text', got a list"),
        ("a.jsonl", '{"text": "\\ud83d"}\n', "line 1: expected whole characters in 'text'"),
        ("a.jsonl", "[" * 100_000, "line 1: .*nested too deeply"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xe4"}\n', r"line 2: expected UTF-8.*0xe4\. Save"),
        ("a.csv", "text,id\na,1\nb\n", r"a\.csv, line 3: expected 2 cells.*got 1\. Correct"),
        ("a.csv", "text,id\n'a\nb',1\n", "line 2: expected 2 cells.*got 1"),
        ("a.csv", 'text,id\n"a\nb",1\nc,2,3\n', "line 4: expected 2 cells.*got 3"),
        ("a.csv", "text,id\na,1,2\nb,3,4\n", "line 2: expected 2 cells.*got 3"),
        ("a.csv", 'text,id\na,1\n"b,2\nc,3\n', "line 3: expected cells that are quoted whole"),
        ("a.csv", "text,text\na,1\n", r"line 1: .*got 'text' twice\. Rename"),
        ("a.csv", b"text\na\n\xff\n", r"line 3: expected UTF-8.*0xff"),
        ("a.csv", "text\n", "has no row but its header"),
        ("a.txt", b"one\ntwo\nth\xe4\n", "line 3: expected UTF-8 text, got the byte 0xe4"),
        ("a.txt", b"\xef\xbb\xbfone\ntwo\x00\n", "line 2: expected UTF-8 text.*0x00"),
        ("a.txt", b"\xef\xbb\xbfone\n\xff", "line 2: expected UTF-8 text.*0xff"),
        ("a.txt", "", "is empty. Name a file with text"),
        ("a.txt.gz", " \n", "is empty"),
        ("a.jsonl.xz", "\n", "is empty"),
        (
            "a.docx",
            "text",
            r"must have a name that ends in one of \.txt, .*\.tsv, with \.gz or \.xz.*\. Rename it",
        ),
    ],
)
def test_an_error_names_the_file_and_the_line(file, name, content, match):
    path = file(name, content)
    with pytest.raises(ValueError, match=match) as raised:
        read_texts(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_row_without_a_label_is_named(file):
    path = file("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": 0.5}\n')
    with pytest.raises(
        ValueError, match="line 2: expected a text or a whole number as 'label'.*frac"
    ):
        read_rows(path, ["text", "label"])
    with pytest.raises(
        ValueError, match=r"must have a name that ends in one of \.jsonl, \.csv, \.tsv"
    ):
        read_rows(file("a.txt", "text"), ["text"])


@pytest.mark.parametrize("packing", [".gz", ".xz"])
@pytest.mark.parametrize("ending", ["txt", "jsonl", "csv"])
def test_a_packed_file_that_is_broken_is_named(tmp_path, packing, ending):
    path = tmp_path / f"a.{ending}{packing}"
    whole = PACK[packing](b'{"text": "sun"}\n' * 99)
    for broken in (b"text\nsun\n", whole[:-9]):
        path.write_bytes(broken)
        with pytest.raises(
            ValueError, match=rf"{path} is not a whole {packing} file.*\. Pack it again"
        ):
            read_texts(path)


@pytest.mark.parametrize("packing", [".gz", ".xz"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.de"])
def test_what_unpacks_to_too_much_is_not_held(tmp_path, monkeypatch, packing, name):
    monkeypatch.setenv(SETTING, "1000003")
    path = tmp_path / f"{name}{packing}"
    row = b'{"text": "sun"}\n' if "jsonl" in name else b"sun\n"
    path.write_bytes(PACK[packing](row * (23_000_009 // len(row))))
    read = read_lines if ".de" in name else read_texts
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError, match=rf"{path} must fit into at most 1,000,003 bytes .*{SETTING}"
        ):
            read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The dictionary of xz has 8 MiB.
    assert peak < 13_000_003


@pytest.mark.parametrize("packing", [".gz", ".xz"])
def test_a_small_file_does_not_unpack_to_a_large_one(tmp_path, monkeypatch, packing):
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(files, "_SMALL", 10_007)
    path = tmp_path / f"a.txt{packing}"
    path.write_bytes(PACK[packing](b"sun " * 50_021))
    size = path.stat().st_size
    most = max(100 * size, 10_007)
    with pytest.raises(ValueError, match=rf"at most {most:,} bytes, but its {size} bytes unpack"):
        read_texts(path)
    # What was said is allowed.
    monkeypatch.setenv(SETTING, "200084")
    assert read_texts(path) == ["sun " * 50_021]


def test_a_file_that_is_too_large_is_not_opened(tmp_path):
    for name in ("a.txt", "a.jsonl", "a.de"):
        with (tmp_path / name).open("wb") as hole:
            hole.truncate(2**40)
        with pytest.raises(ValueError, match=rf"{name} must fit into at most 1,073,741,824 bytes"):
            (read_lines if ".de" in name else read_texts)(tmp_path / name)


def test_files_that_are_read_together_are_counted_together(tmp_path, monkeypatch):
    files = [tmp_path / f"{name}.txt.gz" for name in "abc"]
    for file in files:
        file.write_bytes(gzip.compress(b"sun " * 1009))
    monkeypatch.setenv(SETTING, "10007")
    assert [len(text) for text in read_texts(files[:2])] == [4036, 4036]
    with pytest.raises(ValueError, match="of all files together, unpacked"):
        read_texts(files)
    monkeypatch.setenv(SETTING, "13001")
    assert len(read_texts(files)) == 3


@pytest.mark.parametrize("packing", [".gz", ".xz"])
def test_packed_files_may_have_several_parts_and_no_more(tmp_path, packing):
    path = tmp_path / f"a.txt{packing}"
    parts = [PACK[packing](b"sun\n" * 7), PACK[packing](b"moon\n" * 300_007)]
    path.write_bytes(b"".join(parts) + bytes(16))
    assert read_texts(path) == ["sun\n" * 7 + "moon\n" * 300_007]
    path.write_bytes(b"".join(parts) + b"another thing")
    with pytest.raises(ValueError, match=f"is not a whole {packing} file"):
        read_texts(path)


def test_an_archive_that_asks_for_any_memory_is_refused(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**30}]
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"sun", filters=filters))
    with pytest.raises(ValueError, match=r"not a whole \.xz file \(Memory usage limit"):
        read_texts(tmp_path / "a.txt.xz")


def test_a_character_may_lie_on_the_edge_of_a_block(file):
    text = "a" * (2**18 - 1) + "☀\n" + "b" * 2**18 + "é"
    assert read_texts(file("a.txt", text)) == [text]
    assert read_lines(file("a.de", text)) == text.split("\n")
    broken = text.encode()[:-1]
    with pytest.raises(ValueError, match="line 2: expected UTF-8 text, got the byte 0xc3"):
        read_texts(file("b.txt", broken))


def test_a_row_that_does_not_end_is_named(file, monkeypatch):
    for module in (files, rows):
        monkeypatch.setattr(module, "LONGEST_LINE", 1009)
    long = "x" * 1013
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: expected lines of at most 1,009 char"):
        read_texts(file("a.jsonl", f'{{"text": "a"}}\n{{"text": "{long}"}}\n'))
    with pytest.raises(ValueError, match=r"b\.csv, line 3: expected lines of at most 1,009 char"):
        read_texts(file("b.csv", 'text\nsun\n"' + "a\n" * 1013))
    assert read_texts(file("c.csv", "text\n" + "sun\n" * 1013)) == ["sun"] * 1013


def test_the_only_column_is_that_of_all_rows(file):
    named = file("a.jsonl", '{"review": "sun"}\n{"review": "moon", "by": "me"}\n')
    with pytest.raises(
        ValueError, match=r"a\.jsonl has no column 'text', but 'review', 'by'\. Choose"
    ):
        read_texts(named)
    assert read_texts(named, field="review") == ["sun", "moon"]
    later = file("b.jsonl", '{"review": "sun"}\n{"text": "moon"}\n')
    with pytest.raises(ValueError, match=r"b\.jsonl, line 1: expected 'text', got a row without"):
        read_texts(later)


def test_names_that_are_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*a\.txt. Check its name"):
        read_texts(tmp_path / "a.txt")
    with pytest.raises(FileNotFoundError, match=r"no file .*a\.csv\. There is no folder .*none"):
        read_rows(tmp_path / "none" / "a.csv", ["text"])
    with pytest.raises(IsADirectoryError, match=r"is a folder\. Name a file in it"):
        read_lines(tmp_path)
    with pytest.raises(OSError, match="nul+ is not a regular"):
        read_lines(os.devnull)
    with pytest.raises(ValueError, match="got '-'. Standard input is not read"):
        read_texts("-")
    with pytest.raises(ValueError, match="got ''"):
        read_lines("")
    with pytest.raises(FileNotFoundError, match=r"no file a\\x00b. Check its name"):
        read_lines("a\0b")
    with pytest.raises(OSError, match=r"xxx cannot be read \(File name too long\)"):
        read_lines("x" * 9_999)
    with pytest.raises(ValueError, match="at least one file of texts, got none"):
        read_texts([])


def test_the_real_files(data_folder):
    plain = (data_folder / "shakespeare" / "input.txt").read_bytes().decode()
    assert read_texts(data_folder / "shakespeare" / "input.txt") == [plain]
    german, english = (
        read_lines(data_folder / "multi30k" / f"train.{language}.gz") for language in ("de", "en")
    )
    assert len(german) == len(english) == 29_000


TABLES = Path(__file__).parents[2] / "data" / "tables"
FILES = sorted(path.name for path in TABLES.iterdir() if path.suffix != ".md")
REVIEWS = [
    ("Ein feiner, alter Film; 3,5 Punkte", "good"),
    ('A "dull" film', "bad"),
    ("Çok iyi | 电影", "good"),
]


def test_there_are_tables_of_many_kinds():
    assert len(FILES) >= 40


@pytest.mark.parametrize("name", FILES)
def test_tables_are_read_as_people_have_them(name):
    assert read_rows(TABLES / name, ["text", "label"]) == REVIEWS


def test_quotes_are_letters_where_tabs_stand_between_cells(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text('text\tlabel\n"Great" film\tgood\nso "bad\tbad\n')
    assert read_rows(file, ["text", "label"]) == [('"Great" film', "good"), ('so "bad', "bad")]


def test_the_advice_on_quotes_makes_a_table_readable(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('text,label\n"Great" film,good\n')
    with pytest.raises(ValueError, match="Put the cell in quotes, and write each quote inside it"):
        read_rows(file, ["text", "label"])
    file.write_text('text,label\n"""Great"" film",good\n')
    assert read_rows(file, ["text", "label"]) == [('"Great" film', "good")]


@pytest.mark.parametrize("name", FILES)
def test_the_columns_of_each_table_are_found(name):
    found = found_columns([str(TABLES / name)], OPEN)
    assert (found.names, found.about) == ({"text": "text", "label": "label"}, "")


OPEN = {"text": "auto", "label": "auto"}
FILMS = [("a fine film, or so", "good"), ("dull", "bad"), ("an old film", "good")]
SAID = "To choose others, use --set text=COLUMN label=COLUMN."


def lines(*rows, between=";"):
    return "".join(between.join(row) + "\n" for row in rows)


@pytest.mark.parametrize("between", ";\t|")
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_columns_of_a_table_without_a_header_are_numbered(file, ending, between):
    path = file(f"a.{ending}", lines(*FILMS, between=between))
    found = found_columns([str(path)], OPEN)
    assert found.names == {"text": "1", "label": "2"}
    assert found.about == (f"Columns: text=1 label=2, counted as the table has no header. {SAID}")
    assert read_rows(path, ["1", "2"]) == FILMS
    assert read_rows(path, ["2"]) == [(label,) for _, label in FILMS]
    with pytest.raises(ValueError, match=r"has no column 'by', but '1', '2'\. Name one of these"):
        read_rows(path, ["by"])


def test_the_first_row_is_data_where_no_cell_looks_like_a_name(file):
    rows = [("I liked it.", "1"), ("Was it good?", "2"), ("No!", "3")]
    path = file("a.csv", as_csv(rows[0], rows[1:], ","))
    assert read_rows(path, ["1", "2"]) == rows
    assert read_texts(file("b.csv", "It was a fine film.\nNo!\n")) == ["It was a fine film.", "No!"]


def test_a_header_that_is_asked_for_is_one_and_numbers_say_that_there_is_none(file):
    asked = ("What did you like?", "How many stars?")
    path = file("a.csv", as_csv(asked, [("the end", "5"), ("all", "4")], ","))
    assert read_rows(path, asked) == [("the end", "5"), ("all", "4")]
    named = file("b.csv", lines(("text", "label"), *FILMS))
    assert read_rows(named, ["2"])[0] == ("label",)


def test_a_row_without_a_header_is_refused_with_its_line(file):
    path = file("a.csv", lines(*FILMS, ("so",)))
    with pytest.raises(ValueError, match="line 4: expected 2 cells, as in the first row, got"):
        read_rows(path, ["1"])


def test_the_advice_on_a_late_cell_that_opens_with_a_quote_is_enough(file):
    rows = [[f"text {number}", "good"] for number in range(211)]
    late = 150
    for cell, quoted in (('"Great" film', '"""Great"" film"'), ('"so', '"""so"')):
        rows[late] = [cell, "bad"]
        content = lines(("text", "label"), *rows, between="\t")
        with pytest.raises(
            ValueError, match=f"line {late + 2}: .*Put the cell in quotes, and write"
        ):
            read_rows(file("a.tsv", content), ["text", "label"])
        table = file("a.tsv", content.replace(cell, quoted))
        assert read_rows(table, ["text", "label"]) == [tuple(row) for row in rows]


def test_a_header_may_come_again_and_its_names_may_be_values(file):
    header = ("review", "kind")
    again = file("a.csv", lines(header, *FILMS, header, *FILMS))
    assert read_rows(again, ["kind"])[:1] == [("good",)]
    one_hot = file("b.csv", lines(("text", "0", "1"), ("a", "0", "1"), ("b", "1", "0")))
    assert read_rows(one_hot, ["text", "1"]) == [("a", "1"), ("b", "0")]
    kinds = file("c.csv", lines(("How?", "question"), ("So.", "comment"), ("When?", "question")))
    assert read_rows(kinds, ["2"])[0] == ("question",)


@pytest.mark.parametrize(
    ("header", "row", "names"),
    [
        (("no", "Yorum", "Etiket"), "{n};{text};{label}", ("Yorum", "Etiket")),
        (("etiqueta", "reseña"), "{label};{text}", ("reseña", "etiqueta")),
        (("標籤", "評論"), "{label};{text}", ("評論", "標籤")),
        (("REVIEW", "İÇERİK", "Sentiment"), "{text};x;{label}", ("REVIEW", "Sentiment")),
        # By what they hold: kinds repeat, texts are the longest, and the rest is neither.
        (("no", "set", "mark", "words"), "{n};a;{label};{text}", ("words", "mark")),
        (("at", "words", "mark"), "https://a.example/{n}/{n};{text};{label}", ("words", "mark")),
        # A name counts for more than what the column holds.
        (("label", "mark", "words"), "{n};{label};{text}", ("words", "label")),
        (("comment", "review", "mark"), "so;{text};{label}", ("review", "mark")),
    ],
)
def test_columns_are_found_by_names_and_by_what_they_hold(file, header, row, names):
    rows = [row.format(n=n, text=text, label=label) for n, (text, label) in enumerate(FILMS)]
    path = file("a.csv", "\n".join([";".join(header), *rows]))
    found = found_columns([str(path)], OPEN)
    assert tuple(found.names.values()) == names
    taken = as_command([f"text={names[0]}", f"label={names[1]}"])
    assert found.about == f"Columns: {taken}. {SAID}"


def test_columns_that_are_set_are_taken(file):
    path = file("a.csv", lines(("review", "comment", "mark"), *((a, a, b) for a, b in FILMS)))
    with pytest.raises(ValueError, match="has no column"):
        found_columns([str(path)], OPEN)
    found = found_columns([str(path)], {**OPEN, "text": "comment"})
    assert found.names == {"text": "comment", "label": "mark"}


@pytest.mark.parametrize(
    ("header", "row", "lacking"),
    [
        ("sentiment;rating;text", "{label};{label};{text}", "column 'label'"),
        ("a;b;mark", "{text};{text};{label}", "column 'text'"),
        ("a;b", "{n};{text}", "column 'label'"),
        ("a;b", "{n};{n}", "columns 'text', 'label'"),
    ],
)
def test_a_table_of_which_several_columns_fit_or_none_is_refused(file, header, row, lacking):
    rows = [row.format(n=n, text=text, label=label) for n, (text, label) in enumerate(FILMS)]
    path = file("a.csv", "\n".join([header, *rows]))
    names = ", ".join(map(repr, header.split(";")))
    with pytest.raises(
        ValueError, match=rf"has no {lacking}, but {names}\. Choose columns, as in"
    ) as said:
        found_columns([str(path)], OPEN)
    settings = dict(each.split("=") for each in str(said.value).split("--set ")[1][:-1].split())
    assert {*settings.values()} <= {*header.split(";")}
    assert {**OPEN, **settings}.keys() == OPEN.keys()
    check_columns([path], found_columns([str(path)], {**OPEN, **settings}).names)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (lines(("no", "de", "en"), ("1", "a b", "a c"), ("2", "d e", "f g")), ("de", "en")),
        (lines(("a b.", "c d."), ("e.", "f.")), ("1", "2")),
        (lines(("english", "source"), ("a", "b")), ("source", "english")),
        (lines(("hedef", "kaynak", "by"), ("a", "b", "c")), ("kaynak", "hedef")),
    ],
)
def test_columns_of_translations_are_found_in_order(file, content, names):
    columns = {"source": "auto", "target": "auto"}
    found = found_columns([str(file("a.csv", content))], columns)
    assert tuple(found.names.values()) == names


def test_half_a_character_of_utf16_is_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("\ufefftext,label\na,b\n".encode("utf-16-le") + b"\x61")
    with pytest.raises(ValueError, match="expected UTF-8 text, got the byte 0xff"):
        read_rows(tmp_path / "a.csv", ["text", "label"])
