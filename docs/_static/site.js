// What is wider than its box scrolls, so that the keyboard must reach it.
function reachable() {
  for (const box of document.querySelectorAll("pre, .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
addEventListener("load", reachable);
addEventListener("resize", reachable);
