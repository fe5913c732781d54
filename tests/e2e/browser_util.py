# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven with the WebDriver protocol of chromedriver over plain HTTP."""

import base64
import json
import os
import shutil
import urllib.error
import urllib.request

import pytest

import harness

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Right": "\ue014", "Left": "\ue012", "Down": "\ue015", "Up": "\ue013",
        "Home": "\ue011", "End": "\ue010", "Escape": "\ue00c"}


def require_chromium():
    """(browser, driver), or a skip that says what to install."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("NO BROWSER: the page was not tested. Install chromium and chromium-driver (scripts/install-deps)")
    return browser, driver


class Browser:
    """One tab. Every call fails with what the browser said."""

    def __init__(self, procs, folder):
        browser, driver = require_chromium()
        self.port = harness.free_port()
        home = os.path.join(folder, "home")
        os.makedirs(home)
        self.process = procs.start(driver, f"--port={self.port}",
                                   env={"HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home})
        self.process.wait_port(self.port, timeout_s=30)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
                 "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
                 "--no-default-browser-check", "--disable-default-apps", "--disable-domain-reliability",
                 f"--user-data-dir={os.path.join(folder, 'profile')}", "--window-size=1280,900", "--lang=en"]
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": browser, "args": flags, "perfLoggingPrefs": {"enableNetwork": True}},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}}, timeout=120)
        self.session = f"/session/{answer['sessionId']}"

    def _call(self, method, path, body=None, timeout=60):
        data = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as r:
                return json.load(r)["value"]
        except urllib.error.HTTPError as e:
            with e:
                raise AssertionError(f"{method} {path}: {e.read().decode(errors='replace')[:1500]}") from None

    def post(self, path, **body):
        return self._call("POST", self.session + path, body)

    def quit(self):
        self._call("DELETE", self.session)
        self.process.stop()

    def go(self, url):
        self.post("/url", url=url)

    def js(self, script, *args):
        """Value of a function body in the page."""
        return self.post("/execute/sync", script=script, args=list(args))

    def text(self, css="body"):
        """What is shown of the first element that matches; "" without one."""
        return self.js("return document.querySelector(arguments[0])?.innerText ?? ''", css)

    def wait_text(self, what, css="main", timeout_s=20):
        return harness.wait_until(lambda: what in self.text(css), timeout_s, f"text {what!r} in {css}")

    def wait_js(self, script, timeout_s=20):
        return harness.wait_until(lambda: self.js("return " + script), timeout_s, script)

    def click(self, css):
        element = self.post("/element", using="css selector", value=css)[ELEMENT]
        self.post(f"/element/{element}/click")

    def keys(self, *names):
        """Presses keys one after the other, where the focus is; a name of KEYS or text."""
        actions = []
        for name in names:
            for c in [KEYS[name]] if name in KEYS else name:
                actions += [{"type": "keyDown", "value": c}, {"type": "keyUp", "value": c}]
        self.post("/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def focused(self):
        """The focused element: its text or label."""
        return self.js("const e = document.activeElement; return e.getAttribute('aria-label') || e.innerText")

    def cdp(self, cmd, **params):
        return self.post("/goog/cdp/execute", cmd=cmd, params=params)

    def size(self, width, height=900):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme):
        """What the system prefers: "light" or "dark"."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        """The whole page, also below the fold."""
        self.js("scrollTo(0, 0)")
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))

    def console(self):
        """Messages of the console since the last call."""
        return [f"{m['level']}: {m['message']}" for m in self.post("/se/log", type="browser")]

    def requests(self):
        """Addresses asked for since the last call."""
        out = []
        for entry in self.post("/se/log", type="performance"):
            m = json.loads(entry["message"])["message"]
            if m["method"] == "Network.requestWillBeSent":
                out.append(m["params"]["request"]["url"])
        return out
