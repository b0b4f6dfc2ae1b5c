"""The service's pages in a browser: all can read and use them, on a telephone too, and they change by themselves."""

import threading
import time
from importlib.resources import files

import pytest
import uvicorn
from _chromium import chromium, needs_chromium
from _filled import fill
from _serving import Serving

from kernel_assay.fuzz.service.protocol import Heartbeat, Progress
from kernel_assay.fuzz.service.queue import leases

pytestmark = needs_chromium
PAGES = (
    *("/", "/findings", "/findings/{finding}", "/jobs", "/jobs/{running}", "/jobs/{failed}", "/kernels"),
    *("/performance", "/queue", "/trends", "/projects/vision", "/projects/an-empty-one", "/jobs/abcdef", "/signin"),
)
AXE = """
const [all, done] = arguments;
const asked = {resultTypes: ["violations"], ...(all ? {} : {runOnly: ["color-contrast"]})};
axe.run(document, asked).then(({violations}) => done(violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120))])));
"""
FOCUSED = """
const e = document.activeElement, style = getComputedStyle(e);
return [e.tagName, e.name || e.textContent.trim().slice(0, 40), e.matches(":focus-visible") && style.outlineStyle];
"""
REACHABLE = """
return [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")]
  .filter((e) => e.checkVisibility()).length
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    serving = Serving(folder)
    serving.ids = fill(serving.service.database, findings=9, ended=3, timed=8)
    serving.token()
    config = uvicorn.Config(serving.app, port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    serving.address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    yield serving
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser(site, tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as made:
        source = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
        made.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
        made.driver.get(f"{site.address}/signin/{site.service.door.once('t0')}")
        assert made.all(".bar form"), made.driver.title
        made.wear(1280, "light")
        yield made


def violations(browser, *, all_rules):
    return browser.driver.execute_async_script(AXE, all_rules)


def test_every_page_can_be_read_by_everybody_and_fits(site, browser):
    wrong = {}
    for page in PAGES:
        browser.wear(1280, "light")
        browser.driver.get(site.address + page.format(**site.ids))
        browser.js("for (const fold of document.querySelectorAll('details')) fold.open = true")
        for width, scheme in ((1280, "light"), (400, "dark")):
            browser.wear(width, scheme)
            found = violations(browser, all_rules=scheme == "light")
            wide = browser.js("const page = document.documentElement; return page.scrollWidth - page.clientWidth")
            wrong |= {(page, width): (found, wide)} if found or wide else {}
    assert wrong == {}


def test_what_the_check_finds_is_told(site, browser):
    browser.wear(1280, "light")
    browser.driver.get(f"{site.address}/queue")
    browser.js("document.querySelector('main').innerHTML = '<p>faint</p><button></button>'")
    browser.js("document.querySelector('main p').style.color = '#ccc'")
    assert {name for name, _ in violations(browser, all_rules=True)} == {"color-contrast", "button-name"}


def test_all_can_be_done_by_the_keyboard(site, browser):
    from selenium.webdriver.common.keys import Keys

    browser.wear(1280, "light")
    browser.driver.get(f"{site.address}/findings/{site.ids['finding']}?project=vision")
    many, press = browser.js(REACHABLE), browser.driver.switch_to.active_element.send_keys
    press(Keys.TAB)
    assert browser.js(FOCUSED)[1] == "Skip to the content"
    assert browser.js("return document.activeElement.getBoundingClientRect().left") >= 0
    met, hidden = 1, []
    while met < many + 5:
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        tag, words, outline = browser.js(FOCUSED)
        if tag in {"BODY", "HTML"}:
            break
        met += 1
        hidden += (
            [(tag, words)] if outline in {False, "none"} and words != "until" else []
        )  # a date draws its own parts
    assert hidden == []
    assert many <= met <= many + 4  # a field for a date has parts


def test_a_run_changes_on_the_page_without_a_reload(site, browser):
    from selenium.webdriver.support.ui import WebDriverWait

    browser.driver.get(f"{site.address}/jobs/{site.ids['running']}")
    figures = browser.seen(".figures div")
    assert "since the last new thing" in " ".join(figures)
    browser.js("window.still = true; document.querySelector('pre').focus()")
    task, epoch = site.ids["task"], site.ids["epoch"]
    told = Progress(cases=5000, judged=900_000, cells=2000, seconds=90.0)
    with site.service.database.writing() as connection:
        leases.heartbeat(connection, task, Heartbeat(epoch=epoch, progress=told, log="one more line\n"), time.time())
    site.service.changed()
    WebDriverWait(None, 15, 0.1).until(lambda _: any("one more line" in text for text in browser.seen("pre")))
    assert browser.js("return window.still && document.activeElement.matches('pre')")
    assert "outputs/s10,000" in "".join(browser.seen(".figures div")[2].split())


def test_it_can_be_used_without_scripts(site, browser):
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.support.ui import WebDriverWait

    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get(f"{site.address}/jobs/{site.ids['waiting']}")
        next(one for one in browser.all("button") if one.text == "Cancel this job").click()
        wait = WebDriverWait(None, 15, 0.1, ignored_exceptions=[WebDriverException])  # the old page goes meanwhile
        wait.until(lambda _: "cancelled" in browser.one("h1").text)
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
