"""Visits the pages of `fhrd serve` in Debian's Chromium, as people do: by links, forms and keys.

browser.py URL TOKEN DOWNLOADS SCREENSHOTS SHA256: the last one is that of me/model's model.safetensors.
The names and texts of the pages are hostile. Screenshots are for people who look at them.
"""

import base64
import hashlib
import shutil
import sys
import time
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

url, token, downloads, screenshots, sha256 = sys.argv[1:]
WIDE, NARROW = 1280, 390
PAGES = ["/", "/snapshots", "/families", "/runs", "/space", "/health"]
PAGES += ["/me/model", "/datasets/me/dataset", "/me/model/tree/main"]
OPTIONS = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking"
OPTIONS += " --disable-sync --disable-component-update --disable-default-apps --disable-extensions --no-first-run"


def started():
    options = ChromeOptions()
    for option in OPTIONS.split():
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = shutil.which("chromium")
    return Chrome(options=options, service=ChromeService(executable_path=shutil.which("chromedriver")))


driver = started()


def logged():
    """What the console got since the last call."""
    return [entry["message"] for entry in driver.get_log("browser")]


def visit(path):
    """A page whose console stays empty, once it is there."""
    end = time.monotonic() + 60
    while True:
        driver.get(url + path)
        if "is being read" not in driver.page_source:
            break
        assert time.monotonic() < end, path
        time.sleep(0.3)
    sound(path)


def sound(path):
    """What is true of every page."""
    assert not (messages := logged()), f"{path}: {messages}"
    script = "return [document.querySelectorAll('script,img,iframe,object').length, window.alerted === undefined,"
    script += " document.querySelectorAll('h1').length, document.documentElement.lang,"
    script += " document.documentElement.scrollWidth - document.documentElement.clientWidth]"
    elements, is_calm, titles, language, beyond = driver.execute_script(script)
    assert (elements, is_calm, titles, language) == (0, True, 1, "en"), f"{path}: {elements} {is_calm} {titles}"
    assert beyond <= 0, f"{path}: the page is {beyond} pixels too wide"
    steering = set("\x1b\x07\u202e\u2066\x9b") & set(driver.find_element(By.TAG_NAME, "body").text + driver.title)
    assert not steering, f"{path}: {steering}"


def look(width, theme):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == NARROW}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def shot(name):
    """A picture of the whole page."""
    size = driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}
    picture = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    Path(screenshots, f"{name}.png").write_bytes(base64.b64decode(picture["data"]))


def log_in(given):
    field = driver.find_element(By.NAME, "token")
    assert field == driver.switch_to.active_element, "the field has the focus"
    field.send_keys(given, Keys.ENTER)


def texts(selector):
    return [element.text for element in driver.find_elements(By.CSS_SELECTOR, selector)]


def login():
    driver.get(url + "/me/model?q=x")
    assert "Log in" in driver.title and not texts("table"), driver.page_source
    shot("login")
    log_in("hf_nobody_has_this_token_here")
    assert texts("[role=alert]") == ["Nobody has this token."], driver.page_source
    shot("refused")
    # The refusals are statuses of the pages themselves; nothing else may be in the console.
    refusals = logged()
    assert all("401 (Unauthorized)" in message for message in refusals), refusals
    log_in(token)
    assert driver.current_url == url + "/me/model?q=x", driver.current_url
    cookies = driver.get_cookies()
    assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")], cookies
    assert driver.execute_script("return document.cookie") == ""
    sound("behind the login")


def every_page():
    for path in PAGES:
        for width in [WIDE, NARROW]:
            colours = set()
            for theme in ["light", "dark"]:
                look(width, theme)
                visit(path)
                colours.add(driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
                shot(f"{path.strip('/').replace('/', '-') or 'home'}-{width}-{theme}")
            assert len(colours) == 2, f"{path}: both themes have {colours}"
    look(WIDE, "light")


def every_file():
    """Each entry of the model, down to its directories, by clicks."""
    waiting, seen = ["/me/model/tree/main"], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        visit(path)
        links = [link.get_attribute("href").removeprefix(url) for link in driver.find_elements(By.CSS_SELECTOR, "td a")]
        waiting += [link for link in links if "/tree/main/" in link or "/blob/main/" in link]
    assert len(seen) > 12, seen
    for width in [WIDE, NARROW]:
        look(width, "light")
        visit("/me/model/blob/main/tiny.safetensors")
        shot(f"tensors-{width}")
        visit("/me/model/blob/main/README.md")
        shot(f"text-{width}")
    assert "<script>alert(1)" in driver.find_element(By.TAG_NAME, "body").text, "the text is a text"
    look(WIDE, "light")


def search_and_sort():
    visit("/")
    names = texts("tbody tr td:first-child")
    assert len(names) > 12 and names == sorted(names), names
    driver.find_element(By.LINK_TEXT, "size").click()
    sound("sorted")
    assert driver.find_element(By.CSS_SELECTOR, "th[aria-sort=descending]").text.startswith("size")
    driver.find_element(By.NAME, "q").send_keys("copy-1", Keys.ENTER)
    sound("found")
    found = texts("tbody tr td:first-child")
    assert found and all("copy-1" in name for name in found), found
    assert driver.find_element(By.CSS_SELECTOR, "th[aria-sort=descending]").text.startswith("size"), "the order stays"
    driver.find_element(By.LINK_TEXT, "Show all").click()
    sound("all")
    field = driver.find_element(By.NAME, "q")
    field.send_keys('"><script>window.alerted=1</script>', Keys.ENTER)
    sound("searched for markup")
    assert "No name matches" in driver.find_element(By.TAG_NAME, "main").text
    shot("nothing-found")


def download():
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": downloads})
    visit("/me/model/blob/main/model.safetensors")
    driver.find_element(By.LINK_TEXT, "Download").click()
    file, end = Path(downloads, "model.safetensors"), time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < end, list(Path(downloads).iterdir())
        time.sleep(0.1)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == sha256
    # A stored page is a file, too: it never opens in the browser.
    visit("/me/model/blob/main/page.html")
    driver.find_element(By.LINK_TEXT, "Download").click()
    while not Path(downloads, "page.html").exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    assert "/blob/main/page.html" in driver.current_url
    assert not logged()


def keyboard():
    visit("/")
    driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    focused = driver.switch_to.active_element
    assert focused.text == "Skip to the content" and focused.is_displayed(), focused.text
    shot("skip")
    focused.send_keys(Keys.ENTER)
    assert driver.current_url.endswith("#main")


def without_scripts():
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    driver.get(url + "/")
    driver.find_element(By.NAME, "q").send_keys("dataset", Keys.ENTER)
    assert texts("tbody tr td:first-child") == ["me/dataset"]
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def absent():
    driver.get(url + "/me/none")
    assert "Repository not found" in driver.page_source
    shot("absent")
    refusals = logged()
    assert all("404 (Not Found)" in message for message in refusals), refusals


def logout():
    visit("/")
    driver.find_element(By.XPATH, "//button[text()='Log out']").click()
    # A click may return before what it leads to is there.
    end = time.monotonic() + 10
    while driver.current_url != url + "/login" or driver.get_cookies():
        assert time.monotonic() < end, f"{driver.current_url} {driver.get_cookies()}"
        time.sleep(0.1)
    driver.get(url + "/me/model")
    assert "Log in" in driver.title


try:
    versions = driver.capabilities
    print("Chromium", versions["browserVersion"], flush=True)
    look(WIDE, "light")
    for step in [login, every_page, every_file, search_and_sort, download, keyboard, without_scripts, absent, logout]:
        step()
        print(step.__name__, flush=True)
finally:
    driver.quit()
