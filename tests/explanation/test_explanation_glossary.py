"""The terms of each language are those of its field, in catalogues and pages, and stay so."""

import re
import tomllib

import catalogues
import pytest
from babel.messages.pofile import read_po
from explanation_told import traced

import glasshead as gh

ROOT = catalogues.ROOT
PAGES = {
    "tr": (
        "README.tr.md",
        "docs/tutorials/readers/a.tr.md",
        "docs/tutorials/readers/d.tr.md",
        "docs/tutorials/errata.tr.md",
    ),
    "es": ("README.es.md", "docs/tutorials/readers/b.es.md", "docs/tutorials/errata.es.md"),
    "zh_Hant": (
        "README.zh-Hant.md",
        "docs/tutorials/readers/c.zh-Hant.md",
        "docs/tutorials/errata.zh-Hant.md",
    ),
    "zh_Hans": (
        "README.zh-Hans.md",
        "docs/tutorials/readers/e.zh-Hans.md",
        "docs/tutorials/errata.zh-Hans.md",
    ),
}
# What a reader of the field would not write, by language.
FORBIDDEN = {
    "tr": (
        r"[Ss]ert dikkat|[Kk]od çözücü|çevirmen model|[Ss]özcü|[Bb]asılı|Ne diyor|söner|kısaltıldı",
        r"Maske bir (pencere|önek)|üssü o skor|\byaygın\b|transformer model",
        r"[Yy]anlılık|[Uu]ydurma|[İi]şlenmiş örnek|tarifi\b|([Bb]irini|seçeneği(ni)?) bırakın",
    ),
    "es": (
        r"[Ff]rase|[Oo]rdenador|\b[Óó]rden(es)?\b|la orden|manuales|Suavización|\btraductor\b",
        r"\b[Ii]mpres[oa]s?\b|es una ventana:|es un prefijo:",
        r"\b[Hh]an? (mirado|encontrado|dado)\b",
        r"\b(tú|vosotros|vuestr[oa])\b",
        r"[Ii]nventad[oa]s?\b|palabras? miradas?\b|qué tal|\breceta\b|\by (se )?recib(ió|ieron)\b",
        r"\bun softmax\b|coma flotante|el (studio|estudio)\b|carpeta de una ejecución",
    ),
    "zh_Hant": (
        r"次方」|「分數」次方|印出|印成|配方|走過每一對|沒有動靜|要看頭|信息|視頻|默認",
        r"編造|工作室|文本|詞元|範例",
    ),
    "zh_Hans": (
        r"“分数”次幂|(?<!打)印出|印成|配方|走过每一对|遍历每一对|没有动静|要看头|维数|資訊|程式",
        r"(?<!（)词元|单词|编造|工作室|电脑",
    ),
}
# What each language says somewhere, with the English term beside it where it is first met.
REQUIRED = {
    "tr": (
        "keskin dikkat, hard attention",
        "yumuşak dikkat, soft attention",
        "Öz dikkat (self-attention)",
        "Çapraz dikkat (cross-attention)",
        "Çok başlı dikkat (multi-head attention)",
        "scaled dot-product attention",
        "skor (puan)",
        "sapma (bias)",
        "tümevarım (induction)",
        "Dikkat başları",
        "gradyan kaybolur",
        "Ters sıcaklık β",
    ),
    "es": (
        "autoatención (self-attention)",
        "atención cruzada (cross-attention)",
        "atención dura, hard attention",
        "atención suave, soft attention",
        "multicabeza (multi-head attention)",
        "scaled dot-product attention",
        "oración",
        "comandos",
        "Suavizado",
        "tope suave (softcap)",
        "modelo de traducción",
    ),
    "zh_Hant": (
        "自注意力（self-attention）",
        "交叉注意力（cross-attention）",
        "硬注意力，hard attention",
        "軟注意力，soft attention",
        "多頭注意力（multi-head attention）",
        "縮放點積注意力，scaled dot-product attention",
        "查詢（query）",
        "鍵（key）",
        "值（value）",
        "上下文向量（context vector）",
        "權重矩陣",
        "注意力頭",
        "歸納（induction）",
        "沒有進展",
    ),
    "zh_Hans": (
        "自注意力（self-attention）",
        "交叉注意力（cross-attention）",
        "硬注意力，hard attention",
        "软注意力，soft attention",
        "多头注意力（multi-head attention）",
        "缩放点积注意力，scaled dot-product attention",
        "查询（query）",
        "token（词元）",
        "参数矩阵",
        "维度",
        "nat",
        "归纳（induction）",
        "没有进展",
    ),
}
LANGUAGES = tuple(FORBIDDEN)


def translations(language):
    """The sentences of a catalogue, by the English ones."""
    path = catalogues.LOCALES / language / "LC_MESSAGES" / "glasshead.po"
    with path.open("rb") as file:
        return {str(m.id): str(m.string) for m in read_po(file) if m.id}


def pages(language):
    """The prose of a language's pages, by name: without blocks of code, code and addresses."""
    found = {}
    for name in PAGES[language]:
        text = (ROOT / name).read_text("utf-8")
        text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
        found[name] = re.sub(r"`[^`]*`|\]\([^)]*\)|https?:\S+", "", text)
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_terms_that_were_corrected_do_not_come_back(language):
    texts = [*translations(language).values(), *pages(language).values()]
    for pattern in FORBIDDEN[language]:
        assert [found[0] for text in texts for found in re.finditer(pattern, text)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_fields_terms_are_said(language):
    texts = "\n".join(translations(language).values())
    assert [term for term in REQUIRED[language] if term not in texts] == []


GLOSSARY = tomllib.loads((ROOT / "docs" / "reference" / "glossary.toml").read_text("utf-8"))


def strayed(english, translated, language):
    """The terms of an English sentence of which a translation has none of the glossary's forms.

    A translation may keep an English word, as the names of arguments do.
    """
    for other in GLOSSARY["other"]:
        english = english.replace(other["text"], " ")
    english = re.sub(r"\{[^}]*\}", " ", english)
    small = translated.replace("İ", "i").lower()
    for term in (term for group in GLOSSARY["group"] for term in group["term"]):
        found = term.get("found", [term["name"], f"{term['name']}s"])
        words = rf"\b({'|'.join(map(re.escape, found))})\b"
        forms = [form.lower() for form in term[language]]
        if re.search(words, english, re.IGNORECASE) and not (
            any(form in small for form in forms) or re.search(words, translated)
        ):
            yield term["name"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations_have_the_terms_of_the_glossary(language):
    wrong = [
        (english, translated, terms)
        for english, translated in translations(language).items()
        if translated and (terms := [*strayed(english, translated, language.replace("_", "-"))])
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("english", "translated", "terms"),
    [
        ("The scores of two heads", "Las puntuaciones de dos cabezas", []),
        ("The scores of two heads", "Las notas de dos cabezas", ["score"]),
        ("Queries ask, {keys} answer", "Las preguntas se contestan", ["query"]),
        ("query has 3 axes", "query tiene 3 ejes", []),
        ("Use the arrow keys", "Use las flechas", []),
    ],
)
def test_a_term_that_strays_is_found(english, translated, terms):
    assert [*strayed(english, translated, "es")] == terms


@pytest.mark.release
def test_what_is_another_thing_is_said_with_its_reason():
    said = "\n".join(catalogues.collected())
    assert all(other["why"] for other in GLOSSARY["other"])
    assert [other["text"] for other in GLOSSARY["other"] if other["text"] not in said] == []


def test_english_has_one_term_for_each_thing():
    wrong = (
        r"rows? look|looks? are columns|behind the mask|a row a |lets go|takes a word at least"
        r"|in the midst|So far it was|how it is computed is real|choice / here|has a fault here"
    )
    assert [text for text in catalogues.collected() if re.search(wrong, text, re.IGNORECASE)] == []


def test_the_context_of_values_is_pulled_and_not_in_their_midst():
    # Values 0, 10, 5 with weights 0.4, 0.4, 0.2 give 5: exactly the value with the least weight.
    assert 0.4 * 0 + 0.4 * 10 + 0.2 * 5 == 5.0
    for language, pulled in {
        "tr": "ağırlığı en büyük olan değerler kendine çeker",
        "es": "tiran más de él los que tienen los pesos más grandes",
        "zh_Hant": "權重越大的值對它的牽引越強",
        "zh_Hans": "权重越大的值对它的牵引越强",
    }.items():
        assert any(pulled in text for text in translations(language).values())


WORDS = {"word", "query", "key", "first", "second", "source", "name", "mask", "layer", "normalizer"}


def test_no_turkish_suffix_hangs_on_a_word_that_is_filled_in():
    # After “üç” it would be ’e, after “göz” ’e, after “kol” ’a: no fixed suffix fits all of them.
    for english, turkish in translations("tr").items():
        for place, after in re.findall(r"\{(\w+)\}[”»]?(\S?)", turkish):
            if place in WORDS or place in re.findall(r"“\{(\w+)\}”", english):
                assert not re.match(r"[’'a-zçğıöşü]", after), turkish


@pytest.mark.parametrize("word", ["üç", "göz", "kol", "1"])
def test_turkish_reads_right_for_words_of_every_vowel(word):
    explanation = gh.explain(traced(mask=gh.causal()), tokens=[word] * 5, query=3, lang="tr")
    text = explanation.text(width=100)
    assert f"“{word}₄” kelimesi" in text
    assert not re.search(rf"“{word}[₁₂₃₄₅]?”[’'a-zçğıöşü]", text)


@pytest.mark.parametrize("language", ["en", "es"])
def test_one_is_no_plural(language):
    """A number that may be 1 has no noun in the plural after it."""
    texts = catalogues.collected() if language == "en" else set(translations("es").values())
    one = r"\{(others|zeros|others|words|of_words|done)\} \w+s\b"
    assert [text for text in texts if re.search(one, text)] == []


@pytest.mark.parametrize("language", ["zh_Hant", "zh_Hans"])
def test_chinese_punctuation_is_full_width(language):
    for name, text in [*translations(language).items(), *pages(language).items()]:
        assert not re.search(r"[一-鿿][,;:?!]", text), name
        assert not re.search(r"[一-鿿]\(|\)[一-鿿]", text), name
        assert not re.search(r"[一-鿿]\.(\s|$)", text), name
    for sentence, translated in translations(language).items():
        assert not re.search(r"[，。；：、] ", translated), sentence
