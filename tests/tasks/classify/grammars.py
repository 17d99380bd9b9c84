"""Small languages of reviews, in which the words of held-out texts never occur in training.

A Turkish word is a stem with suffixes, one of which may negate it; a Chinese one is made of
characters. Held-out words are stems with suffixes, and characters with characters, that training
has only apart.
"""

from random import Random

_FILMS = {
    "tr": ("bu film", "dünkü oyun", "izlediğimiz dizi", "IŞIK adlı film", "yeni şarkı"),
    "zh": ("这部电影", "昨天的节目", "她的新歌", "这本书", "那个游戏", "楼下的餐厅"),
}
_PRAISE = "güzel harika başarılı eğlenceli etkileyici sıcak akıcı dokunaklı zeki ışıltılı"
_BLAME = "kötü sıkıcı yavan berbat anlamsız soğuk zayıf dağınık aptal ılık"
_NOUNS = "sinema ev okul şehir kardeş arkadaş akşam yağmur bilet salon sahne köy deniz istasyon"
_NOUNS += " ırmak iş ışık öğretmen kadın oğlan ülke koltuk ırk ilçe"
_FACTS = ["我们昨天去的", "外面下着雨", "一共两个小时", "是朋友告诉我的", "在北京", "穿了新衣服"]
_SENSES = ["看", "听", "玩", "吃", "用", "笑", "读", "喝", "住", "学"]
_DEGREES = ("很", "真", "非常", "太", "还是")


def reviews(language: str, count: int, *, held_out: bool, seed: int = 0) -> list[tuple[str, str]]:
    """Generate reviews in "tr" or "zh" with their labels."""
    random, rows = Random(seed), []
    review = {"tr": _turkish, "zh": _chinese}[language]
    while len(rows) < count:
        text, praises, apart = review(random)
        if apart == held_out:
            rows.append((text, "good" if praises else "bad"))
    return rows


def _vowels(stem: str) -> tuple[str, str]:
    """Return the vowels of suffixes, by the last vowel of a stem."""
    last = next(letter for letter in reversed(stem) if letter in "aeıioöuü")
    return {
        **dict.fromkeys("aı", ("a", "ı")),
        **dict.fromkeys("ei", ("e", "i")),
        **dict.fromkeys("ou", ("a", "u")),
        **dict.fromkeys("öü", ("e", "ü")),
    }[last]


def _noun(random: Random) -> str:
    noun = random.choice(_NOUNS.split())
    e, i = _vowels(noun)
    many = random.choice(("", f"l{e}r"))
    if many:
        i = "ı" if e == "a" else "i"
    vowel = (noun + many)[-1] in "aeıioöuü"
    whose = random.choice(("m", f"m{i}z", f"n{i}z"))
    return noun + many + ("" if vowel else i) + whose + random.choice((f"d{e}", f"d{e}n", f"l{e}"))


def _turkish(random: Random) -> tuple[str, bool, bool]:
    praises, place, form = random.random() < 0.5, random.randrange(10), random.randrange(5)
    stem = (_PRAISE if praises else _BLAME).split()[place]
    e, i = _vowels(stem)
    y = "y" if stem[-1] in "aeıioöuü" else ""
    suffix = (f"{y}d{i}", f"{y}m{i}ş", f"d{i}r", f"c{e}", f"l{i}k")[form]
    words = [_noun(random), random.choice(_FILMS["tr"]), _noun(random)]
    text = " ".join([*words[: random.randint(1, 3)], f"{stem}{suffix}."])
    if random.random() < 0.2:
        text = text.replace("i", "İ").replace("ı", "I").upper()
    # Each stem lacks a form in training.
    return text, praises, place % 5 == form


def _chinese(random: Random) -> tuple[str, bool, bool]:
    sense, good, negated = random.choice(_SENSES), random.random() < 0.5, random.random() < 0.3
    degree = "不" if negated else random.choice(_DEGREES)
    parts = [f"{random.choice(_FILMS['zh'])}{degree}{'好' if good else '难'}{sense}"]
    parts.insert(random.randint(0, 1), random.choice(["", *_FACTS]))
    # Training has two senses without "good", and two others without "hard to".
    apart = sense in (_SENSES[:2] if good else _SENSES[2:4])
    return (
        "".join(f"{part}{random.choice('！。')}" for part in parts if part),
        good != negated,
        apart,
    )
