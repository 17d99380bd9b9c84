"""Search of Chinese words: by single characters and by pairs, as no spaces part them."""

import re
from itertools import pairwise

from sphinx.application import Sphinx
from sphinx.search import SearchLanguage

_RUN = re.compile(r"[\u3400-\u9fff]+|[^\W\u3400-\u9fff]+")


class ChineseWords(SearchLanguage):
    """Index each Chinese character and each two that stand together; other words as they are.

    The page splits a query likewise, but a run of two or more into its pairs alone.
    """

    lang = "zh"
    language_name = "Chinese"
    js_splitter_code = r"""
var splitQuery = (query) =>
  (query.match(/[\u3400-\u9fff]+|(?:(?![\u3400-\u9fff])[\p{L}\p{N}_])+/gu) ?? []).flatMap((run) =>
    /^[\u3400-\u9fff]{2,}$/.test(run)
      ? [...run].slice(1).map((next, at) => run[at] + next)
      : [run],
  );
"""

    def split(self, input: str) -> list[str]:  # noqa: A002
        """Return the words to index."""
        words = []
        for run in _RUN.findall(input):
            if "\u3400" <= run[0] <= "\u9fff":
                words += [*run, *map("".join, pairwise(run))]
            else:
                words.append(run.lower())
        return words


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the language."""
    app.add_search_language(ChineseWords)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
