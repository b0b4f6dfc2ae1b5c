"""The page in a browser: it opens fast, fits, can be read in light and dark, and its few buttons work."""

import json

import pytest
from _chromium import chromium, needs_chromium
from _large_book import large_book
from _timing_run import timing_run

from kernel_assay.reports.formats.html import render
from kernel_assay.reports.timing import page

pytestmark = needs_chromium

FAINT = """
const parse = (text) => {
  const canvas = parse.canvas ??= Object.assign(document.createElement("canvas"), {width: 1, height: 1});
  const brush = parse.brush ??= canvas.getContext("2d", {willReadFrequently: true});
  brush.clearRect(0, 0, 1, 1); brush.fillStyle = text; brush.fillRect(0, 0, 1, 1);
  return [...brush.getImageData(0, 0, 1, 1).data];
};
const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const colour = parse(getComputedStyle(e).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255];
};
const faint = {};
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || e.closest("script, style, .skip") || !e.checkVisibility()) continue;
  const style = getComputedStyle(e), colour = parse(e.closest("svg") ? style.fill : style.color);
  if (colour[3] === 0) continue;
  const [low, high] = [light(colour), light(behind(e))].sort((a, b) => a - b);
  const ratio = (high + 0.05) / (low + 0.05);
  if (ratio < 4.5) faint[`${e.tagName} ${e.className.baseVal ?? e.className}`] = ratio;
}
return faint;
"""
"""Kinds of visible text with less contrast than WCAG 2 AA asks for."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    paths = {}
    for name, findings in (("large", 200), ("small", 9), ("clean", 0)):
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(render(large_book(findings, 10_000_000 if findings > 9 else 20_000)), "utf-8")
    paths["times"] = folder / "times.html"
    paths["times"].write_text(page(timing_run()), "utf-8")
    return paths


def test_the_large_page_opens_in_under_a_second(browser, pages):
    browser.wear(1280, "light")
    times = []
    for _ in range(3):  # others may use the processors, too: the fastest counts
        browser.open(pages["large"])
        times.append(browser.js("return performance.getEntriesByType('navigation')[0].loadEventEnd"))
        if times[-1] < 1000:
            break
    assert min(times) < 1000, times
    assert browser.driver.get_log("browser") == []


@pytest.mark.parametrize(
    ("page", "width", "scheme"),
    [
        *(("large", width, "light") for width in (400, 1280)),
        *(
            (page, width, scheme)
            for page in ("small", "clean", "times")
            for width in (400, 1280)
            for scheme in ("light", "dark")
        ),
    ],
)
def test_nothing_sticks_out(browser, pages, page, width, scheme):
    browser.wear(width, scheme)
    browser.open(pages[page])
    browser.js("for (const fold of document.querySelectorAll('details')) fold.open = arguments[0]", page != "large")
    assert browser.js("const page = document.documentElement; return page.scrollWidth - page.clientWidth") == 0
    assert browser.driver.get_log("browser") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["small", "times"])
def test_all_text_can_be_read(browser, pages, page, scheme):
    browser.wear(1280, scheme)
    browser.open(pages[page])
    browser.js("for (const fold of document.querySelectorAll('details')) fold.open = true")
    browser.js(
        "document.head.append(Object.assign(document.createElement('style'), "
        "{textContent: '* { content-visibility: visible !important }'}))"
    )
    assert browser.js(FAINT) == {}


def test_from_the_list_to_a_finding_to_its_reproducer(browser, pages):
    browser.wear(1280, "light")
    browser.open(pages["large"])
    link = browser.all(".rows a")[100]
    name = link.get_attribute("hash")
    browser.js("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    section = browser.one(name)
    assert 0 <= browser.js("return arguments[0].getBoundingClientRect().top", section) < 300
    fold = section.find_element("css selector", ".reproducer summary")
    code = section.find_element("css selector", ".reproducer pre")
    assert not code.is_displayed()
    browser.js("arguments[0].scrollIntoView({block: 'center'})", fold)
    fold.click()
    assert code.is_displayed()
    assert "def main():" in code.text
    save = section.find_element("css selector", "[data-save-of]")
    browser.js("arguments[0].scrollIntoView({block: 'center'})", save)
    save.click()
    saved = browser.downloads / f"reproduce_{name.removeprefix('#finding-')}.py"
    wait(saved.exists)
    assert saved.read_text("utf-8") == browser.js("return arguments[0].textContent", code)
    compile(saved.read_text("utf-8"), saved.name, "exec")


def wait(condition):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(None, 5, 0.05).until(lambda _: condition())


def test_pictures_of_times_are_as_large_on_a_telephone(browser, pages):
    """At 400 pixels no picture is made smaller, so that its letters stay as large as they are."""
    browser.wear(400, "dark")
    browser.open(pages["times"])
    assert (
        browser.js(
            "return [...document.querySelectorAll('.plot svg')]"
            ".map(e => e.getBoundingClientRect().width / e.viewBox.baseVal.width)"
        )
        == [1] * 6
    )
    inside = (
        "return [...document.querySelectorAll('.plot svg')].every(svg => { const b = svg.getBoundingClientRect(); "
        "return [...svg.querySelectorAll('text, path')].every(e => { const r = e.getBoundingClientRect(); "
        "return r.left >= b.left - 1 && r.right <= b.right + 1 && r.bottom <= b.bottom + 1 }) })"
    )
    assert browser.js(inside)


def test_it_can_be_printed(browser, pages):
    browser.wear(1280, "dark")
    browser.open(pages["small"])
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert browser.one("h1").is_displayed()
        assert browser.one(".finding:last-of-type .cases").is_displayed()
        assert not any(e.is_displayed() for e in browser.all("button"))
        assert browser.js("return getComputedStyle(document.body).backgroundColor") == "rgb(253, 253, 252)"
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_command_is_copied(browser, pages):
    browser.wear(1280, "light")
    browser.open(pages["small"])
    browser.js(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => { window.copied = text; }}})"
    )
    button = browser.all(".commands button")[1]
    browser.js("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    wait(lambda: button.text == "Copied")
    assert browser.js("return window.copied").startswith("kassay replay ")


def test_the_filter(browser, pages):
    from selenium.webdriver.common.keys import Keys

    browser.wear(1280, "light")
    browser.open(pages["large"])
    rows = len(browser.all(".rows li"))
    assert browser.one("[data-shown]").text == f"{rows} of {rows} shown"
    browser.one("body").send_keys("/")
    box = browser.driver.switch_to.active_element
    box.send_keys("softmax bfloat16")
    left = browser.seen(".rows li")
    assert 0 < len(left) < rows
    assert all("bfloat16" in row for row in left)
    assert all("softmax" in head for head in browser.seen(".group h3"))
    box.send_keys(" no such word")
    assert browser.seen(".group") == []
    assert browser.one("[data-none]").is_displayed()
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(Keys.BACKSPACE)
    browser.one("[data-kind] option:nth-child(2)").click()
    kind = browser.one("[data-kind]").get_attribute("value")
    shown = [row for row in browser.all(".rows li") if row.is_displayed()]
    assert {row.get_attribute("data-kind") for row in shown} == {kind}
    browser.one("[data-kind] option:first-child").click()
    browser.one("[data-standing] option:nth-child(2)").click()
    standing = browser.one("[data-standing]").get_attribute("value")
    assert set(browser.seen(".rows .chip")) == {standing}


def test_the_theme_can_be_chosen(browser, pages):
    browser.wear(1280, "light")
    browser.open(pages["clean"])
    button = browser.one("[data-theme-toggle]")
    colours = []
    for _ in range(3):
        colours.append((button.text, browser.js("return getComputedStyle(document.body).backgroundColor")))
        button.click()
    (auto, one), (light, two), (dark, three) = colours
    assert (auto, light, dark) == ("Theme: auto", "Theme: light", "Theme: dark")
    assert one == two != three
    assert button.text == "Theme: auto"


def test_a_folded_place_opens_for_its_link(browser, pages):
    browser.wear(1280, "light")
    browser.open(pages["small"])
    place = browser.js("return document.querySelector('pre[id]').id")
    browser.js("location.hash = arguments[0]", place)
    wait(lambda: browser.one(f"#{place}").is_displayed())


def test_it_can_be_read_without_scripts(browser, pages):
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(pages["small"])
        assert not any(e.is_displayed() for e in browser.all(".js"))
        assert browser.one("h1").is_displayed()
        assert browser.all(".rows li")[5].is_displayed()
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_it_has_landmarks_and_names_for_what_can_be_used(browser, pages):
    browser.open(pages["small"])

    def nodes():
        return browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]

    landmarks = {"main", "navigation", "banner", "contentinfo", "search"}
    wait(lambda: landmarks <= {n.get("role", {}).get("value") for n in nodes()})  # the tree is made beside the page
    tree = nodes()
    used = {"button", "link", "searchbox", "combobox", "region", "img"}
    nameless = [n for n in tree if n.get("role", {}).get("value") in used and not n.get("name", {}).get("value")]
    assert json.dumps(nameless) == "[]"
