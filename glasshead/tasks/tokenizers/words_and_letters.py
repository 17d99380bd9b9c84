"""Words and letters of the world's scripts: what is a word, and which letters are equal.

Chinese, Japanese, Thai, Lao, Khmer and Burmese put no spaces between words, so there each letter
with its marks is a word. So is an emoji with what it is joined to.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tokenizers import Regex, normalizers, pre_tokenizers

_MARKED = r"[\p{M}\p{Emoji_Modifier}]*"
_EMOJI = rf"\p{{Extended_Pictographic}}{_MARKED}"
_WITHOUT_SPACES = (
    r"[ー\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
)
# Not \X, which takes quadratic time for flags.
ALONE = (
    rf"{_WITHOUT_SPACES}[\p{{M}}\u0e33\u0eb3]*|{_EMOJI}(?:\u200d{_EMOJI})*|"
    r"\p{Regional_Indicator}{2}"
)
# The small sigma at the end of a word, which lowercasing letter by letter does not make.
FINAL_SIGMA = r"σ\b"
# How Unicode's names of letters begin, by what the script is called.
_SCRIPTS = {
    "CJK": "Chinese",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "BOPOMOFO": "Chinese",
    "THAI": "Thai",
    "LAO": "Lao",
    "KHMER": "Khmer",
    "MYANMAR": "Burmese",
}
# Of the letters of a text in one of these scripts, beyond which it is taken to have no spaces.
_SHARE = 0.5
# A twentieth of the letters of Turkish and Azerbaijani is the dotless i, which others lack.
_DOTLESS = 0.01
# Characters by which scripts and languages are distinguished.
_READ = 10**6


def words_of_texts() -> Any:
    """Return the pre-tokenizer that splits texts into words, punctuation marks and emoji.

    >>> [word for word, _ in words_of_texts().pre_tokenize_str("电影iPhone, 👍🏽👍")]
    ['电', '影', 'iPhone', ',', '👍🏽', '👍']
    """
    alone = pre_tokenizers.Split(Regex(ALONE), "isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), alone])


def same_letters(texts: Iterable[str], *, lowercase: bool) -> Any:
    """Return the normalizer that gives equal letters equal characters (NFC), by the texts' casing.

    Args:
        texts: Training texts; where they have the dotless ı, I is its capital and İ that of i.
        lowercase: Whether letters are lowercased.

    >>> same_letters(["ışıl ışıl"], lowercase=True).normalize_str("Işıl İyi")
    'ışıl iyi'
    >>> same_letters(["in"], lowercase=True).normalize_str("İn I")
    'in i'
    """
    if not lowercase:
        return normalizers.NFC()
    letters = _counted(texts)
    turkish = letters["ı"] >= _DOTLESS * letters.total()
    return normalizers.Sequence(
        [
            normalizers.NFC(),
            # Lowercased alone, İ would become i and a combining dot.
            normalizers.Replace("İ", "i"),
            *([normalizers.Replace("I", "ı")] if turkish else []),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(FINAL_SIGMA), "ς"),
        ]
    )


def without_spaces(texts: Iterable[str]) -> str | None:
    """Return the script of texts that have no spaces between words, or None if they have them.

    >>> without_spaces(["这部电影很好看", "iPhone"]), without_spaces(["a film", "电影"])
    ('Chinese', None)
    """
    scripts = Counter[str]()
    for letter, count in _counted(texts).items():
        scripts[script_of(letter)] += count
    known = Counter({name: scripts[name] for name in {*_SCRIPTS.values()} & {*scripts}})
    if known.total() <= _SHARE * scripts.total():
        return None
    # Japanese has Chinese characters, too.
    return "Japanese" if known["Japanese"] else known.most_common(1)[0][0]


def script_of(letter: str) -> str:
    """Return the script of a letter, or what its name begins with.

    >>> script_of("a"), script_of("ж"), script_of("好")
    ('Latin', 'Cyrillic', 'Chinese')
    """
    first = re.split(r"[ -]", unicodedata.name(letter, "unnamed"), maxsplit=1)[0]
    return _SCRIPTS.get(first, first.capitalize())


def _counted(texts: Iterable[str]) -> Counter[str]:
    """Count the letters at the beginning of texts."""
    letters, read = Counter[str](), 0
    for text in texts:
        some = text[: _READ - read]
        letters.update(filter(str.isalpha, some))
        read += len(some)
        if read >= _READ:
            break
    return letters
