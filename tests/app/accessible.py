"""An accessibility check of a page in a browser: names, headings, landmarks, contrast, keyboard, sizes.

Names and roles come from the browser's own accessibility tree; contrast, sizes and focus from computed
styles, after WCAG 2.2 AA.
"""

from itertools import pairwise

from browser import Browser

ACTIVE = {"link", "button", "textbox", "DisclosureTriangle", "checkbox", "combobox", "meter"}

CONTRAST = """(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = c => { c /= 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; };
  const lightness = ([r, g, b]) => .2126 * light(r) + .7152 * light(g) + .0722 * light(b);
  const behind = node => {
    for (let n = node; n; n = n.parentElement) {
      const [r, g, b, a = 1] = parts(getComputedStyle(n).backgroundColor);
      if (a === 1) return [r, g, b];
      if (a > 0) throw "translucent";
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || !node.checkVisibility() || node.closest(".unseen, title")) continue;
    const style = getComputedStyle(node), svg = node.closest("svg");
    const [a, b] = [lightness(parts(svg ? style.fill : style.color)), lightness(behind(node))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.push([text.slice(0, 30), ratio.toFixed(2)]);
  }
  return bad;
})()"""

FOCUSABLE = """[...document.querySelectorAll(
  "a[href], button, input:not([type=hidden]), summary, [tabindex='0']"
  )].filter(node => node.checkVisibility())"""
PLACE = f"{FOCUSABLE}.indexOf(document.activeElement)"
SEEN = """(() => { const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2; })()"""
SMALL = f"""{FOCUSABLE}.filter(node => {{ const box = node.getBoundingClientRect();
  return node.matches(".button, input, button") && Math.min(box.width, box.height) < 24; }})
  .map(node => node.outerHTML)"""
TWICE = (
    """[...document.querySelectorAll("[id]")].map(n => n.id).filter((id, i, all) => all.indexOf(id) !== i)"""
)


def check_accessible(tab: Browser) -> int:
    """Check the page in the browser; return the number of elements that a keyboard reaches."""
    nodes = tab.named()
    nameless = [node for node in nodes if node["role"] in {*ACTIVE, "image", "region"} and not node["name"]]
    assert nameless == [], nameless
    roles = [node["role"] for node in nodes]
    regions = [node["name"] for node in nodes if node["role"] == "region"]
    assert len(set(regions)) == len(regions), regions
    assert [roles.count(role) for role in ("main", "banner", "contentinfo")] == [1, 1, 1]
    levels = [int(node["level"]) for node in nodes if node["role"] == "heading"]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= level + 1 for level, later in pairwise(levels)), levels
    assert tab.value("document.documentElement.lang") == "en"
    assert tab.value("document.title")
    for what in (TWICE, CONTRAST, SMALL):
        wrong = tab.value(what)
        assert wrong == [], wrong
    tab.value("document.activeElement.blur(); window.scrollTo(0, 0)")
    tab.value("getSelection().removeAllRanges(); document.body.tabIndex = -1; document.body.focus()")
    count = tab.value(f"{FOCUSABLE}.length")
    for place in range(count):
        tab.press("Tab", 9)
        assert tab.value(PLACE) == place, tab.value("document.activeElement.outerHTML")
        assert tab.value(SEEN), tab.value("document.activeElement.outerHTML")
    tab.value("document.body.removeAttribute('tabindex')")
    return count
