"""Report request: the options of `glasshead report` as they were written."""

import os
from dataclasses import dataclass
from pathlib import Path

from glasshead.cli.inputs.extras import check_extra_of
from glasshead.cli.inputs.reading import read_text, shown
from glasshead.cli.inputs.wording import quoted
from glasshead.cli.outputs.language import check_language, chosen_language
from glasshead.cli.outputs.page_file import check_apart, check_target, write_page
from glasshead.cli.outputs.progress import going_on
from glasshead.cli.outputs.terminal import remark


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """What the user wrote; the fields are the options of the command."""

    model: str
    text: Path
    html: Path
    lang: str | None = None

    @property
    def folder(self) -> Path:
        """The folder of the run, or of the model."""
        return Path(self.model)

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Errors: a ValueError or an OSError that names the option.
        """
        if not self.model:
            raise ValueError("RUN_OR_HF_DIR takes the folder of a model, and got nothing: name it.")
        check_language(self.lang)
        if not self.folder.is_dir():
            raise FileNotFoundError(
                f"RUN_OR_HF_DIR takes the folder of a run or a model, and {quoted(self.model)} is "
                f"none: check its name."
            )
        check_target(self.html)
        check_apart(self.html, (self.text, *self.folder.iterdir()))
        check_extra_of(self.folder, "glasshead report RUN_OR_HF_DIR")

    def execute(self) -> None:
        """Read, and write the page.

        Errors: a ValueError, TypeError or OSError in one sentence. Then nothing was written.
        """
        text = read_text(self.text)
        if not text.strip():
            raise ValueError(
                f"a report takes a text of a word at least, and {shown(self.text)} has none: name "
                f"another file."
            )
        lang = chosen_language(self.lang, os.environ)
        with going_on("Reading…"):
            from glasshead.studio.report import Report

            report = Report(self.folder, text, lang=lang)
            page = report.html()
        write_page(self.html, page)
        remark(f"The page is at {shown(self.html)}")
        for view, why in report.refused.items():
            remark(f"It has no view {view}: {why}")
        for view, (count, of) in report.tokens.items():
            if count < of:
                remark(
                    f"Its view {view} shows {count:,} of the {of:,} tokens of {shown(self.text)}."
                )
