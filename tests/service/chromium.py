"""A real browser for tests: Chromium without a screen, led over a pipe in its own protocol. No driver, no sockets."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "needs Chromium (Debian: apt-get install chromium), to open the pages in a real browser"
PATIENCE = 60.0

# It reads from 3 and writes to 4, whatever the pipes are called here.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, name in zip(ends, (3, 4)):
    os.dup2(end, name)
os.execv(sys.argv[3], sys.argv[3:])
"""


def found() -> str | None:
    """The browser, where there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page."""

    def __init__(self) -> None:
        binary = found()
        assert binary is not None, MISSING
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self._to = os.pipe()
        self._from, replies = os.pipe()
        flags = [
            "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-extensions",
            "--disable-background-networking", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--disable-component-update", f"--user-data-dir={self._folder.name}",
        ]  # fmt: skip
        if os.geteuid() == 0:  # its sandbox does not work for root
            flags.append("--no-sandbox")
        command = [sys.executable, "-c", _LAUNCH, str(theirs), str(replies), binary, *flags, "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(theirs, replies), stdout=quiet, stderr=quiet)
        os.close(theirs)
        os.close(replies)
        self._number, self._buffer, self.console = 0, b"", list[str]()
        self.requests = list[str]()
        self._session: str | None = None
        self._begin()

    def _begin(self) -> None:
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        self._folder.cleanup()

    # ------------------------------------------------------------------ the protocol

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command, and what it gives."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            told = self._message(end)
            if told.get("id") == self._number:
                assert "error" not in told, f"{method}: {told['error']['message']}"
                result: dict[str, Any] = told["result"]
                return result
            self._heard(told)

    def _message(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        return told

    def _heard(self, told: dict[str, Any]) -> None:
        params = told.get("params", {})
        match told.get("method"):
            case "Runtime.exceptionThrown":
                detail = params["exceptionDetails"]
                self.console.append(str(detail.get("exception", {}).get("description", detail["text"])))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.console.append(" ".join(str(one.get("value")) for one in params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.console.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    # ------------------------------------------------------------------ what a person does

    def open(self, url: str) -> None:
        """Go to a page."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """What an expression gives, promises awaited."""
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.run(f"Boolean({condition})"):
                return
            time.sleep(0.03)
        raise AssertionError(f"did not come true: {condition}\n{self.text()}\n{self.console}")

    def text(self) -> str:
        """What the page says."""
        return str(self.run("document.body.innerText"))

    def type(self, text: str) -> None:
        """Write into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        """One key."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        modifiers = 8 if shift else 0
        event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": modifiers}
        text = {"Enter": {"text": "\r"}, " ": {"text": " "}}.get(key, {})
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def screen(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """Another screen."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> bytes:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        content = base64.b64decode(shot["data"])
        path.write_bytes(content)
        return content
