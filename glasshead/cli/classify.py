"""The command `classify`: a trained model tells what texts are."""

from typing import Annotated

from typer import Argument, Option


def classify(
    run: Annotated[str, Argument(metavar="RUN", show_default=False, help="The folder of a run.")],
    texts: Annotated[
        list[str] | None,
        Argument(
            metavar="TEXT",
            show_default=False,
            help="A text, and more of them; without any, the lines of standard input.",
        ),
    ] = None,
    *,
    json: Annotated[
        bool, Option("--json", help="Print a line of JSON for each text, with every share.")
    ] = False,
) -> None:
    """Tell what each text is: its label, how sure the model is, and the text."""
    from glasshead.cli.inputs.extras import check_extra

    check_extra("train", "glasshead classify")
    from glasshead.cli.inputs.lines import texts_of
    from glasshead.cli.outputs.terminal import print_json, print_text
    from glasshead.tasks.classify import TextClassifier

    classifier = TextClassifier.load(run)
    width = max(map(len, classifier.settings.data.answers))
    for some in texts_of(texts):
        for text, answer in zip(some, classifier.classify(some), strict=True):
            if json:
                print_json({"text": text, "label": answer.label, "shares": answer.shares})
            elif text.strip():
                share = answer.shares[answer.label]
                print_text(f"{answer.label:<{width}}  {share:.3f}  {text}", end="\n")
            else:
                print_text("", end="\n")
