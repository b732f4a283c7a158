"""A support bot whose suggested answers learn from thumbs up and down: `python examples/support_bot/run.py`.

It starts a Confide service with one model, people who were made up and who ask and say what helped, and a page on which
you ask too. What anybody wrote or liked, nobody else finds out from their own answers: see the README beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from questions import ANSWERS, question

from confide.service.doors import Keys, Tokens

HERE = Path(__file__).resolve().parent
MODEL = "answers"
LABELS = 4
"""Labels of one person that teach the model: what more they say is taken, and teaches nothing."""

DEPLOYMENT = """\
[public]
port = 0
[operator]
port = 0
[models.{model}]
folder = "state"
labels = {labels}
units = "people"
epsilon = 4.0
delta = 1e-6
rounds = 6000
unit_labels = {most}
monitor = 0.5
monitor_delay = 200
ticket_life = 2000
[models.{model}.columns]
words = "text"
"""

PAGES = {"/": "index.html", "/page.js": "page.js", "/style.css": "style.css"}
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
SAFE = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def deployment(folder: Path) -> Path:
    """The file that `confide serve` takes; an old one is kept, with the model that it belongs to."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "confide.toml"
    if not file.exists():
        text = DEPLOYMENT.format(model=MODEL, labels=json.dumps(list(ANSWERS)), most=LABELS)
        file.write_text(text, encoding="utf-8")
    return file


@contextlib.contextmanager
def service(file: Path) -> Iterator[tuple[int, int]]:
    """A Confide service in a process of its own: its public and its operator's port."""
    command = [sys.executable, "-m", "confide", "serve", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8")
    assert process.stdout is not None
    with process.stdout as log:
        reader = threading.Thread(target=lambda: list(log), daemon=True)  # from then on nobody needs it
        try:
            lines = list[str]()
            for line in log:
                lines.append(line)
                if line.startswith("{") and (event := json.loads(line))["event"] == "serving":
                    reader.start()
                    yield event["public"], event["operator"]
                    return
            raise SystemExit("the service did not start:\n" + "".join(lines))
        finally:
            process.terminate()  # what waits is answered, and the model is saved
            process.wait(60)
            if reader.is_alive():
                reader.join()


def call(port: int, method: str, path: str, content: bytes | None, token: str) -> tuple[int, bytes]:
    """One request to the service's public port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {"authorization": token, "content-type": "application/json"}
        connection.request(method, path, content, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


# ---------------------------------------------------------------------- people who were made up


def crowd(port: int, tokens: Tokens, people: int, told: Callable[[int, float], None], *, seed: int = 1) -> None:
    """So many people ask four questions each, and say what would have helped; `told` hears how many, and how well."""
    coins, right = random.Random(seed), list[bool]()
    for number in range(people):
        token = f"Bearer {tokens.sign(f'made up {number}', expires=3600.0, models=[MODEL])}"
        asked = [question(coins) for _ in range(LABELS)]
        content = {"questions": [{"x": {"words": words}, "id": f"{i}"} for i, (words, _) in enumerate(asked)]}
        status, said = call(port, "POST", f"/models/{MODEL}/ask-many", json.dumps(content).encode(), token)
        if status != 200:  # it stops, or has halted
            return
        answers = json.loads(said)["answers"]
        right += [one["label"] == name for one, (_, name) in zip(answers, asked, strict=True)]
        labels = [{"ticket": one["ticket"], "label": name} for one, (_, name) in zip(answers, asked, strict=True)]
        call(port, "POST", f"/models/{MODEL}/label-many", json.dumps({"labels": labels}).encode(), token)
        if number % 50 == 49 or number == people - 1:
            told(number + 1, sum(right[-200:]) / len(right[-200:]))


# ---------------------------------------------------------------------- the page


def page_server(port: int, public: int, tokens: Tokens) -> ThreadingHTTPServer:
    """Serves the page, knows its visitors, and hands what they ask to the service: what a shop's web server does."""

    class Page(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name = PAGES.get(self.path)
            if name is not None:
                content = (HERE / "page" / name).read_bytes()
                self._send(200, content, KINDS[name.rpartition(".")[2]])
            elif self.path == "/answers":
                self._send(200, json.dumps(ANSWERS).encode())
            elif self.path == f"/models/{MODEL}":
                self._send(*call(public, "GET", self.path, None, ""))
            else:
                self._send(404, b"{}")

        def do_POST(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            content = self.rfile.read(min(size, 10_000))
            if self.path == "/visit":  # here a shop would look who is signed in; a visitor of ours is somebody new
                token = tokens.sign(f"visitor {secrets.token_hex(8)}", expires=3600.0, models=[MODEL])
                self._send(200, json.dumps({"token": token}).encode())
            elif self.path in (f"/models/{MODEL}/ask", f"/models/{MODEL}/label"):
                self._send(*call(public, "POST", self.path, content, self.headers.get("authorization", "")))
            else:
                self._send(404, b"{}")

        def _send(self, status: int, content: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            for name, value in {"content-type": kind, "content-length": str(len(content)), **SAFE}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Who asked, and when, is written down nowhere."""

    return ThreadingHTTPServer(("127.0.0.1", port), Page)


@contextlib.contextmanager
def bot(folder: Path, port: int = 0) -> Iterator[tuple[str, int, int]]:
    """Service and page: the page's address, and the service's two ports."""
    file = deployment(folder)
    with service(file) as (public, operator):
        tokens = Tokens("asker", Keys.make(file.parent / "keys" / "askers"))
        server = page_server(port, public, tokens)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/", public, operator
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A support bot that learns from thumbs up and down, in private.")
    parser.add_argument("--folder", type=Path, help="keep the model here, and go on with it the next time")
    parser.add_argument("--port", type=int, default=8080, help="of the page; 0 for any")
    parser.add_argument("--people", type=int, default=1000, help="made-up people who ask before and beside you")
    given = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="support-bot-")))
        address, public, operator = stack.enter_context(bot(folder, given.port))
        keys = folder / "keys"
        token = Tokens("operator", Keys.make(keys / "operators")).sign("you", expires=43_200.0)
        print(f"Ask the bot:             {address}")
        print(f"Look behind the counter: http://127.0.0.1:{operator}/   with this token for twelve hours:\n{token}")
        print("Stop with Ctrl-C.", flush=True)
        tokens = Tokens("asker", Keys.make(keys / "askers"))

        def told(people: int, share: float) -> None:
            print(f"{people:5} made-up people asked; of their last 200 answers {share:4.0%} were right", flush=True)

        with contextlib.suppress(KeyboardInterrupt):
            crowd(public, tokens, given.people, told)
            threading.Event().wait()


if __name__ == "__main__":
    main()
