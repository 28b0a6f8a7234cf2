"""Headless Chromium, driven by ChromeDriver's own protocol: JSON over HTTP.

Invariants: the browser has its own temporary profile; it loads nothing from other machines. Absent: libraries.
"""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import urllib.request

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
]


class Browser:
    """A page. `close` it."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="remap-ssd-browser-")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                break
        self.base = f"http://127.0.0.1:{found[1]}/session"
        self.base += "/" + self.ask("", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": [*FLAGS, f"--user-data-dir={self.profile}"]},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}})["sessionId"]

    def ask(self, path, body):
        request = urllib.request.Request(self.base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def cdp(self, name, **params):
        return self.ask("/goog/cdp/execute", {"cmd": name, "params": params})

    def view(self, width, height, dark):
        """Shows the page this wide, light or dark."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = "dark" if dark else "light"
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        self.ask("/url", {"url": url})

    def run(self, script, *arguments):
        """Runs a script; returns its result."""
        return self.ask("/execute/sync", {"script": script, "args": list(arguments)})

    def keys(self, text):
        """Types into the focused element."""
        for key in text:
            self.ask("/actions", {"actions": [{"type": "key", "id": "k", "actions": [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]}]})

    def complaints(self):
        """The console's output since the last call."""
        return [one["message"] for one in self.ask("/se/log", {"type": "browser"})]

    def screenshot(self, path):
        shot = self.cdp("Page.captureScreenshot", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def close(self):
        try:
            urllib.request.urlopen(urllib.request.Request(self.base, method="DELETE"), timeout=20).close()
        except OSError:
            pass
        self.driver.terminate()
        self.driver.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
