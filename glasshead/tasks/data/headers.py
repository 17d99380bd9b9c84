"""Whether a table has a header: by the names that people give to columns, and by what repeats."""

from collections.abc import Collection, Mapping, Sequence

# Names of columns by the setting that takes them, the usual one first.
NAMES: Mapping[str, tuple[str, ...]] = {
    "text": (
        *("text", "review", "sentence", "comment", "content", "tweet", "message", "body"),
        *("reviews", "sentences", "comments", "texts", "document", "review_text", "review_body"),
        *("yorum", "yorumlar", "metin", "cümle", "görüş", "değerlendirme", "mesaj"),
        *("texto", "reseña", "comentario", "frase", "oración", "opinión", "mensaje"),
        *("文本", "评论", "句子", "内容", "文字", "評論", "內容", "留言", "評價", "评价"),
    ),
    "label": (
        *("label", "sentiment", "class", "category", "polarity", "target", "labels", "rating"),
        *("stars", "score", "tag", "answer"),
        *("etiket", "duygu", "sınıf", "kategori", "puan", "durum"),
        *("etiqueta", "sentimiento", "clase", "categoría", "polaridad", "puntuación"),
        *("标签", "類別", "类别", "情感", "標籤", "情緒", "情绪", "分类", "分類"),
    ),
    "source": ("source", "src", "source_text", "kaynak", "origen", "fuente", "原文", "源文"),
    "target": (
        *("target", "tgt", "translation", "target_text", "hedef", "çeviri"),
        *("destino", "traducción", "译文", "譯文", "翻译", "翻譯"),
    ),
}
_OTHERS = ("", "id", "index", "date", "title", "author", "user", "language", "split", "url")
_KNOWN = {*_OTHERS, *(name for names in NAMES.values() for name in names)}
# More letters or words than names of columns have.
_LETTERS, _WORDS = 32, 3
_ENDS = (*".!?…。！？؟।",)


def has_header(rows: Sequence[Sequence[str]], asked: Collection[str] = ()) -> bool:
    """Return whether the first row of a table names its columns.

    Args:
        rows: The first rows.
        asked: Columns that are asked for: names, or numbers from 1 if there is no header.

    >>> has_header([["review", "mark"], ["a fine film", "good"]])
    True
    >>> has_header([["a fine film", "good"], ["a dull film", "bad"], ["an old film", "good"]])
    False
    """
    if not rows:
        return True
    first = rows[0]
    if asked and {*asked} <= {*numbers(len(first))}:
        if not {*asked} <= {*first}:
            return False
    elif any(name in first for name in asked):
        return True
    # Files that were put together have a header several times.
    others = [row for row in rows[1:] if row != first]
    repeat = [
        bool(name.strip()) and any(row[place : place + 1] == [name] for row in others)
        for place, name in enumerate(first)
    ]
    if any(plain(name) in _KNOWN and not again for name, again in zip(first, repeat, strict=True)):
        return True
    return not any(repeat) and any(map(_looks_like_a_name, first))


def numbers(count: int) -> list[str]:
    """Return the names of columns without a header.

    >>> numbers(3)
    ['1', '2', '3']
    """
    return [str(number) for number in range(1, count + 1)]


def plain(name: str) -> str:
    """Return a name as it is compared with known names.

    >>> plain(" Review_Text ")
    'review_text'
    """
    # The small letter of İ has a dot of its own.
    return name.strip().lower().replace("i̇", "i")


def _looks_like_a_name(cell: str) -> bool:
    cell = cell.strip()
    return (
        any(map(str.isalpha, cell))
        and len(cell) <= _LETTERS
        and len(cell.split()) <= _WORDS
        and not cell.endswith(_ENDS)
    )
