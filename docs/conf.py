"""Settings of the documentation site, which `make docs` builds by `docs/build_site.py`.

The sources are those of the repository where they are, so that a link between two of its files
is a link between two pages. The English site has every page. That of another language has the
landing page, translated by the catalogues in `docs/locales/`, and the pages whose name ends in the
code of the language, such as `a.tr.md`.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from building.pages import FOLDERS, LANDING, LANGUAGES, LIVE, ROOT, SPHINX_LANGUAGES, pages_of

import glasshead

page_language = os.environ.get("GLASSHEAD_DOCS_LANGUAGE", "en")

project = "glasshead"
author = "The glasshead developers"
version = release = glasshead.__version__
language = SPHINX_LANGUAGES[page_language]

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "myst_nb",
    "building.accessible",
    "building.commands",
    "building.public_names",
    "building.repository_links",
    "building.texts",
    "building.search_words",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
root_doc = LANDING
include_patterns = pages_of(page_language)
exclude_patterns = [
    place.name for place in ROOT.iterdir() if place.is_dir() and place.name not in FOLDERS
]
locale_dirs = ["docs/locales"]
gettext_compact = False
gettext_location = False

# The guide is English: in the sites of other languages the landing page leads to it.
suppress_warnings = ["toc.not_readable"] if page_language != "en" else []

# The names of the reference are in the English site, which is built before.
inventory = os.environ.get("GLASSHEAD_DOCS_INVENTORY")
intersphinx_mapping = {"glasshead": ("..", inventory)} if inventory else {}

# Headings are linked to as on the repository's own pages.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
nb_execution_mode = "off"  # tests run the notebooks, which keep their outputs

default_role = "py:obj"
smartquotes = False  # "auto" is a value
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False

html_theme = "furo"
html_title = "glasshead"
html_favicon = "../glasshead/studio/static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
templates_path = ["_templates"]
html_context = {
    "language": page_language,
    "languages": LANGUAGES,
    "live": LIVE,
    # What links to it, on the landing page and on the tour.
    "try_live": {
        "en": "Try the studio in this browser",
        "tr": "Stüdyoyu bu tarayıcıda deneyin",
        "es": "Pruebe el estudio en este navegador",
        "zh-Hant": "在此瀏覽器中試用 studio",
        "zh-Hans": "在此浏览器中试用 studio",
    }[page_language],
}
html_copy_source = False
html_show_copyright = html_show_sphinx = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
