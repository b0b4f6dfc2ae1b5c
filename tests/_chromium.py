"""Chromium, as the tests of pages use it: one browser, a page at a time."""

import shutil
from contextlib import contextmanager

import pytest

BINARY, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
needs_chromium = pytest.mark.skipif(not (BINARY and DRIVER), reason="chromium or chromedriver is not installed")


class Browser:
    """A page at a time."""

    def __init__(self, driver):
        self.driver = driver

    def wear(self, width, scheme):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wish = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wish)

    def open(self, path):
        self.driver.get("about:blank")  # an address that differs in its fragment only would not be loaded again
        self.driver.get(path if isinstance(path, str) else path.as_uri())

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def seen(self, selector):
        """Texts of what is visible."""
        code = (
            "return [...document.querySelectorAll(arguments[0])]"
            ".filter(e => e.checkVisibility()).map(e => e.textContent.trim())"
        )
        return self.js(code, selector)


@contextmanager
def chromium(folder):
    """A browser; what it downloads lies in a folder of that name."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BINARY
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(20)
    made = Browser(driver)
    made.downloads = folder / "downloads"
    made.downloads.mkdir()
    behaviour = {"behavior": "allow", "downloadPath": str(made.downloads)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    try:
        yield made
    finally:
        driver.quit()
