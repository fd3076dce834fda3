"""A real Chromium for the tests of pages: chromedriver's HTTP protocol by the standard library, and the devtools commands that it passes on."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "" if CHROMIUM and DRIVER else "no chromium with chromedriver on this machine: sh tools/chromium.sh installs it"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip


@dataclass
class Site:
    """A local server that has one page, and what it was asked for."""

    url: str
    page: str = ""
    asked: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serving() -> Iterator[Site]:
    """Serve on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            body = site.page.encode()
            self.send_response(200 if self.path == "/page.html" else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = Site(f"http://127.0.0.1:{server.server_address[1]}/page.html")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class Browser:
    """One browser window."""

    session: str

    def open(self, url: str) -> None:
        """Go to a page and wait until it is loaded."""
        _call("POST", f"{self.session}/url", {"url": url})

    def run(self, script: str) -> Any:
        """What a script returns that looks at the page."""
        return _call("POST", f"{self.session}/execute/sync", {"script": script, "args": []})

    def becomes(self, script: str, wanted: Any, seconds: float = 10) -> Any:
        """What the script returns, as soon as that is `wanted` or the time is over."""
        until = time.monotonic() + seconds
        while (found := self.run(script)) != wanted and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Answer of a devtools command."""
        return _call("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def requests(self) -> list[str]:
        """Addresses that the browser has asked for since the last call."""
        entries = [json.loads(entry["message"])["message"] for entry in _call("POST", f"{self.session}/se/log", {"type": "performance"})]
        return [entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]

    def resize(self, width: int, height: int = 900) -> None:
        """Set the width of the page in CSS pixels."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str, media: str = "screen") -> None:
        """Ask for a light or dark page, on a screen or in print."""
        self.devtools("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": name}])

    def scripts(self, *, run: bool) -> None:
        """Whether the page's own scripts may run; takes effect with the next page."""
        self.devtools("Emulation.setScriptExecutionDisabled", value=not run)

    def widths(self) -> tuple[int, int]:
        """Width of the content and of the window, in CSS pixels; needs no script."""
        metrics = self.devtools("Page.getLayoutMetrics")
        return metrics["cssContentSize"]["width"], metrics["cssLayoutViewport"]["clientWidth"]

    def document(self) -> str:
        """The page's elements as they are now; needs no script."""
        root = self.devtools("DOM.getDocument", depth=0)["root"]["nodeId"]
        markup: str = self.devtools("DOM.getOuterHTML", nodeId=root)["outerHTML"]
        return markup

    def screenshot(self, path: Path) -> None:
        """Save the whole page as PNG."""
        size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]))

    def pdf(self) -> bytes:
        """The page on A4."""
        return base64.b64decode(_call("POST", f"{self.session}/print", {"page": {"width": 21.0, "height": 29.7}}))


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    """A fresh browser with an empty profile; both processes end with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, tempfile.TemporaryFile("w+") as log:
        assert DRIVER is not None
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            base = f"http://127.0.0.1:{_port(driver)}"
            options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
            wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL"}}
            answer = _call("POST", f"{base}/session", {"capabilities": {"alwaysMatch": wanted}})
            session = f"{base}/session/{answer['sessionId']}"
            try:
                yield Browser(session)
            finally:
                _call("DELETE", session, None)
        finally:
            driver.terminate()
            driver.wait(30)
            if driver.stdout is not None:
                driver.stdout.close()


def _port(driver: subprocess.Popen[str]) -> int:
    """The port that chromedriver says it listens on."""
    assert driver.stdout is not None
    until = time.monotonic() + 60
    while time.monotonic() < until:
        line = driver.stdout.readline()
        if "on port " in line and "successfully" in line:
            return int(line.rsplit("on port ", 1)[1].strip(" .\n"))
        if not line:
            break
    raise AssertionError(f"chromedriver did not start: {driver.poll()}")


def _call(method: str, url: str, body: Any) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{method} {url}: {error.read().decode()[:500]}") from error
