"""Document: one file that has all it needs, and may load nothing else."""

import base64
import hashlib
from html import escape
from importlib.resources import files

from glasshead.drawing.page import quoted
from glasshead.studio.page import style_sheet
from glasshead.studio.report.scripts import script


def document(answers: str, title: str, language: str, without_script: str) -> str:
    """The page as one file, in which nothing runs and nothing is loaded but what is in it.

    Args:
        answers: What its views ask for, as JSON that may stand in a script element.
        title: Of its window, as plain text.
        language: Of its words.
        without_script: What is said where no script may run.
    """
    style, code = f"\n{style_sheet()}", f"\n{script()}"
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(style)}'; "
        f"img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return (
        f'<!doctype html>\n<html lang="{quoted(language)}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{quoted(title)}</title>\n"
        f'<link rel="icon" href="{icon()}" type="image/svg+xml">\n'
        f"<style>{style}</style>\n</head>\n"
        f'<body class="glasshead inset studio">\n<noscript>{quoted(without_script)}</noscript>\n'
        f'<script type="application/json" id="answers">{answers}</script>\n'
        f"<script>{code}</script>\n</body>\n</html>\n"
    )


def framed(page: str, title: str) -> str:
    """The page in a frame of its own, for a notebook, whose page it can neither see nor change.

    Args:
        page: As `document` gives it.
        title: What the frame is called, as plain text.
    """
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts allow-downloads" '
        f'title="{quoted(title)}" width="100%" height="760" '
        f'style="border: 1px solid #8886; border-radius: 6px"></iframe>'
    )


def icon() -> str:
    """The picture of the window as a data: URL."""
    content = files("glasshead.studio").joinpath("static", "icon.svg").read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
