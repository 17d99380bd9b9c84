"""What is seen of the view `atlas` in a browser."""

import re

from studio.asking import soon
from studio.conftest import PATIENCE, address

LEFT, BOTTOM = 92, 54


def drawn(page):
    """Wait until all that is to be seen is drawn; a move takes the attribute away at once."""
    page.wait_for_selector(".atlas .body[data-drawn]", timeout=PATIENCE)


def value(page):
    return float(page.locator(".atlas output[data-value]").get_attribute("data-value"))


def level_of(page):
    return int(page.locator(".atlas output[data-value]").get_attribute("data-level"))


def state(page):
    """What the address holds."""
    return dict(re.findall(r"(\w+)=([^&]*)", address(page).split("#")[1]))


def remembered(page, **expected):
    """What the address holds once it holds this, as strings or numbers; it is written now and then.

    None is what it holds no longer.
    """

    def alike(found, wanted):
        return (
            found == wanted if isinstance(wanted, str | None) else float(found or "nan") == wanted
        )

    def held():
        found = state(page)
        return all(alike(found.get(name), wanted) for name, wanted in expected.items())

    assert soon(held), (state(page), expected)
    return state(page)


def eventually(page, happened):
    """Whether something happens before patience ends, of what the browser tells by its events."""

    def told():
        page.evaluate("0")  # Events are heard of while something is asked.
        return happened()

    return soon(told)


def heading(page, side):
    return page.locator(f".atlas section.{side} h2").text_content().replace("\u2009", "")


def said(name, start, length):
    """How a range of keys, or of queries, is headed."""
    one, more = {"Key": ("Key", "Keys"), "Query": ("Query", "Queries")}[name]
    return f"{one} {start}" if length == 1 else f"{more} {start} to {start + length - 1}"


def marked(page, side):
    return page.locator(f".atlas section.{side} mark").text_content()
