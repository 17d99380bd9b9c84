"""What is seen of the view `training` in a browser."""

import csv

GONE = ("net::ERR", "404")
ENTROPY = "Entropy, as a share of its maximum"


def rows_of(run):
    with run.folder.log.open(newline="") as file:
        return list(csv.DictReader(file))


def numbers(page, selector):
    """The exact numbers that a part of the page shows."""
    found = page.locator(f"{selector} [data-value]").evaluate_all(
        "all => all.map(one => [one.dataset.name, one.dataset.value])"
    )
    return dict(found)


def figure_of(page, title):
    return page.locator("figure", has=page.get_by_role("heading", name=title, exact=True))


def readout(page, title):
    found = (
        figure_of(page, title)
        .locator(".readout [data-value]")
        .evaluate_all("all => all.map(one => [one.dataset.name, one.dataset.value])")
    )
    return dict(found)
