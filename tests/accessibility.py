"""What axe, which knows the rules of accessible pages, finds on a page in a browser."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

# How a text contrasts takes axe longest, and texts of one appearance contrast alike: of each
# appearance one text is looked at.
CONTRAST_OF_EACH = """() => {
  axe.configure({ rules: [{ id: "color-contrast", selector: ":not([data-alike])" }] });
}"""
LOOK = """async ({ rules, types }) => {
  const looks = new Map(), seen = new Set(), alike = [];
  for (const one of document.querySelectorAll("*")) {
    const style = getComputedStyle(one);
    const own = ["color", "backgroundColor", "backgroundImage", "opacity", "textShadow",
      "fontSize", "fontWeight", "position", "display", "visibility"].map((name) => style[name]);
    const look = `${looks.get(one.parentNode)}|${own}`;
    looks.set(one, look);
    const isText = one.matches("input, select, textarea")
      || [...one.childNodes].some(({ nodeType, data }) => nodeType === 3 && data.trim());
    if (!isText || !one.checkVisibility() || seen.has(look)) alike.push(one);
    else seen.add(look);
  }
  for (const one of alike) one.dataset.alike = "";
  const asked = { preload: false, selectors: false, resultTypes: ["violations"] };
  const { violations } = await axe.run({ ...asked, ...types, rules });
  for (const one of alike) delete one.dataset.alike;
  return violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 200)}`);
}"""
# What depends on the colours of a page.
COLOURS = ["color-contrast", "link-in-text-block"]


def violations(page: Page, *, colours: bool = True, others: bool = True) -> list[str]:
    """Return which rules the page breaks, each with the first element that breaks it.

    Args:
        page: The page.
        colours: Whether to ask for the rules of colours.
        others: Whether to ask for the other rules.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
        page.evaluate(CONTRAST_OF_EACH)
    rules = {} if colours else {rule: {"enabled": False} for rule in COLOURS}
    types = {} if others else {"runOnly": COLOURS}
    return page.evaluate(LOOK, {"rules": rules, "types": types})
