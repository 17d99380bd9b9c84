"""Drawing: a small document, drawn as text in a terminal or as one page of HTML.

A document is a title and blocks. Each block draws itself as lines of text and as HTML, and knows
nothing of where its numbers come from:

>>> from glasshead.drawing import Document, Formula, Heading, HeatMap, Note, Paragraph, Table
>>> from glasshead.drawing import number
>>> words = ["shiny", "sun!"]
>>> document = Document(
...     [
...         Heading("Weights"),
...         Paragraph("Softmax turns the scores into weights."),
...         Formula("weight = exp(score) / Σ exp(score)"),
...         Note("Why: the weights of a query must sum to one."),
...         Table(["token", "weight"], [["shiny", number(0.40629)], ["sun!", number(0.31)]]),
...         HeatMap([[0.7, None], [0.4, 0.6]], words, words, highlight_row=1),
...     ],
...     title="Two words",
... )
>>> print(document.text(width=60))
Two words
━━━━━━━━━
...

`rich.print(document)` draws in color, `document.text(width)` plainly, `document.html()` a whole
page, and a notebook shows the document by itself. The few phrases that blocks add are `Words`,
which the caller translates: `Document(..., language="tr", words=Words.translated(gettext))`. Text
from users is never read as markup. Names are fetched when they are used: making text printable is
quick to import.
"""

from glasshead.drawing.printable import printable, shorten, visible
from glasshead.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
