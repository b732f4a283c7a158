"""A deployment from its file to its end: what is refused, a real process with two ports, and what survives it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import confide
from confide import TicketError
from confide.cli.app import app as command_line
from confide.games import BOTTOM, OnlineGame, Round
from confide.games.replay import Ask, AskMany, Forget, Hidden, Label, LabelMany, Step, Teach, replay
from confide.pop.base import Answer
from confide.service.base import Question
from confide.service.config import EXAMPLE, ModelConfig, read_config
from confide.service.doors import Keys, Tokens
from confide.service.journal import pack
from confide.service.logs import Log
from confide.service.models import SERVING, features, open_desk, planned, promised, room
from confide.service.server import build, door_of
from confide.service.verifiers import JwtDoor, ProxyDoor
from tests.service.nursery import Nursery, free_ports

SMALL = """
[public]
port = 0
[operator]
port = 0
[models.spam]
folder = "state/spam"
labels = ["no", "yes"]
columns = 2
epsilon = 60.0
delta = 0.01
rounds = 400
units = "people"
"""


DOOR, PROXY = '[doors]\nkind = "proxy"\n', '[doors.proxy]\ntrusted = ["127.0.0.1"]\n'
AWAY = '[models.spam]\nowner = "http://127.0.0.1:8000"\n'


def written(folder: Path, text: str = SMALL) -> Path:
    path = folder / "confide.toml"
    path.write_text(text)
    return path


def test_the_example_is_a_deployment(tmp_path: Path) -> None:
    printed = CliRunner().invoke(command_line, ["serve", "--example"])
    assert printed.exit_code == 0 and printed.output == EXAMPLE
    config = read_config(written(tmp_path, EXAMPLE))
    model = config.models["spam"]
    assert model.folder == tmp_path / "state" / "spam" and config.operator.host == "127.0.0.1"
    assert model.units == "people" and model.release_every is None and config.insecure_seed is None
    made: Any = features(model)
    assert made.ranges == {"links": (0.0, 50.0)}
    assert list(made.categorical) == ["sender"] and list(made.text) == ["words"]
    assert planned(model.model_copy(update={"epsilon": 8.0, "delta": 1e-4})).endless
    assert planned(model.model_copy(update={"epsilon": 8.0, "delta": 1e-4, "rounds": 100_000})).rounds == 100_000


REFUSED = {
    "no models": ("[public]\nport = 1\n", "models: field required"),
    "an unknown entry": (SMALL + "colour = 3\n", "models.spam.colour: there is no such entry, see"),
    "a misspelt entry": (SMALL + "unit_label = 3\n", "unit_label: there is no such entry: is it unit_labels?"),
    "a number in quotes": (SMALL + 'unit_labels = "3"\n', "models.spam.unit_labels: this is a number: write it"),
    "no columns": (SMALL.replace("columns = 2\n", ""), "models.spam: say what x holds"),
    "no labels": (SMALL.replace('labels = ["no", "yes"]\n', ""), "models.spam: say which labels there are"),
    "a bad name": (SMALL.replace("models.spam", 'models."a/b"'), "letters, digits"),
    "a tick that is too short": (SMALL + "release_every = 0.001\n", "models.spam.release_every: input should be"),
    "a seed": ("insecure_seed = 1\n" + SMALL, "CONFIDE_INSECURE_SEED"),
    "one key for both": (SMALL + '[doors]\nasker_keys = "k"\noperator_keys = "k"\n', "different keys"),
    "an unknown door": (SMALL + '[doors]\nkind = "window"\n', "must be tokens, jwt, proxy"),
    "a door without its table": (SMALL + '[doors]\nkind = "jwt"\n', "table doors.jwt"),
    "a ledger elsewhere": (SMALL + 'ledger = "other.db"\n', "models.spam: ledger must be postgresql://"),
    "an owner that is no url": (AWAY.replace("http:", "ftp:"), "models.spam: owner must be the owner's public port"),
    "an owner with a password": (AWAY.replace("//", "//a:b@"), "models.spam: owner must be the owner's public port"),
    "an owner and ticks": (AWAY + "release_every = 0.05\n", "models.spam: release_every is the owner's"),
    "an owner and a folder": (AWAY + 'folder = "state"\n', "models.spam: a model with an owner elsewhere has no other"),
    "an owner and a bad name": (AWAY.replace("models.spam", 'models."a/b"'), "letters, digits"),
    "an empty table of models": ("[models]\n", "the file: name at least one model"),
    "no TOML": ("[models", "not valid TOML"),
    "a delay of no monitor": (SMALL + "monitor_delay = 5\n", "models.spam: monitor_delay is the monitor's"),
    "a tick that nobody waits for": (SMALL + "release_every = 1e5\n", "models.spam.release_every: input should be"),
    "a timeout in which nothing is done": (SMALL + "[limits]\ntimeout = 0.0001\n", "limits.timeout: input should be"),
    "a table of a door that is not open": (
        f'{SMALL}[doors]\nkind = "tokens"\n{PROXY}header = "x-user"\n',
        "doors: kind is tokens, so doors.proxy",
    ),
    "a table beside a door of one's own": (
        f'{SMALL}[doors]\nkind = "a:B"\n{PROXY}header = "x-user"\n',
        "doors: kind is a:B, so doors.proxy",
    ),
    "a proxy's header without a name": (f'{SMALL}{DOOR}{PROXY}header = ""\n', "doors.proxy.header: this is no header"),
    "a header with a space": (f'{SMALL}{DOOR}{PROXY}header = "X-User "\n', "doors.proxy.header: this is no header"),
    "a header of another meaning": (f'{SMALL}{DOOR}{PROXY}header = "Host"\n', "doors.proxy.header: this header says"),
    "a proxy that is no address": (f'{SMALL}{DOOR}[doors.proxy]\nheader = "a"\ntrusted = ["b"]\n', "proxy.trusted"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_wrong_is_refused_with_the_entry(tmp_path: Path, case: str) -> None:
    text, words = REFUSED[case]
    with pytest.raises(ValueError) as refused:
        read_config(written(tmp_path, text))
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("epsilon = 0.0\n", "epsilon"),
        ('learner = "oracle"\ncopies = 30\nunsure = 45\nguide = false\nsilent = 350\n', "is called 'oracle'"),
        ("monitor = 70.0\n", "monitor"),
        ('learner = "nonsense"\n', "is called 'nonsense'"),
        ("silent = 10\n", "silent=10 is for copies, and this plan has none"),
        ("unit_unsure = 5\n", "unit_unsure=5 is for copies, and this plan has none"),
        ("beta = 0.5\n", "beta=0.5 is for copies, and this plan has none"),
        ('learner = "logistic"\n', "learner is for copies, and this plan has none"),
        ("unit_labels = 5\ncopies = 30\nunsure = 45\nguide = false\nsilent = 350\n", "unit_labels=5 is for a guide"),
        ("history = 5\ncopies = 30\nunsure = 45\nguide = false\nsilent = 350\n", "history is for a guide"),
        ('plan = "nowhere.json"\n', "cannot read"),
    ],
)
def test_a_model_that_cannot_be_made_is_refused_by_name(tmp_path: Path, change: str, words: str) -> None:
    text = SMALL.replace("epsilon = 60.0\n", "") if change.startswith("epsilon") else SMALL
    config = read_config(written(tmp_path, text + change))
    with pytest.raises(ValueError, match=r"models\.spam") as refused:
        open_desk("spam", config.models["spam"])
    assert words in str(refused.value) and not (tmp_path / "state").exists()


COLUMNS = """
[models.spam.columns]
age = { kind = "number", low = 0, high = 120 }
note = "text"
city = "category"
"""
NAMED = SMALL.replace("columns = 2\n", "unit_labels = 2\nroom = 600\nsave_every = 50\n") + COLUMNS
CHANGES = {
    "rounds": ("rounds = 400", "rounds = 500"),
    "a smaller epsilon": ("epsilon = 60.0", "epsilon = 6.0"),
    "a larger epsilon": ("epsilon = 60.0", "epsilon = 70.0"),
    "labels in another order": ('"no", "yes"', '"yes", "no"'),
    "units": ('units = "people"', 'units = "rounds"'),
    "a smaller delta": ("delta = 0.01", "delta = 1e-9"),
    "a larger delta": ("delta = 0.01", "delta = 0.02"),
    "unit_labels": ("unit_labels = 2", "unit_labels = 3"),
    "unit_labels left out": ("unit_labels = 2\n", ""),
    "room": ("room = 600", "room = 700"),
    "a renamed column": ("age =", "years ="),
    "a dropped column": ('city = "category"\n', ""),
    "a new column": ('city = "category"\n', 'city = "category"\ntown = "category"\n'),
    "a range": ("high = 120", "high = 100"),
    "a range left out": ('age = { kind = "number", low = 0, high = 120 }', 'age = "number"'),
    "another kind": ('note = "text"', 'note = "number"'),
    "history": ("rounds = 400", "rounds = 400\nhistory = 50"),
    "a monitor": ("rounds = 400", "rounds = 400\nmonitor = 0.5"),
    "after a halt": ("rounds = 400", 'rounds = 400\nafter_halt = "raise"'),
    "a fallback": ("rounds = 400", 'rounds = 400\nfallback = "yes"'),
    "a learner": ("rounds = 400", 'rounds = 400\nlearner = "logistic"'),
    "ticket_life": ("rounds = 400", "rounds = 400\nticket_life = 7"),
}


@pytest.fixture(scope="module")
def made_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a model that was made with `NAMED`; whoever opens it takes a copy."""
    folder = tmp_path_factory.mktemp("made before")
    open_desk("spam", read_config(written(folder, NAMED)).models["spam"]).close()
    return folder / "state"


def opens_again(folder: Path) -> None:
    """With the file that it was made with: a refusal has given everything back."""
    open_desk("spam", read_config(written(folder, NAMED)).models["spam"]).close()


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_does_not_change_what_was_promised(tmp_path: Path, made_before: Path, change: str) -> None:
    before, after = CHANGES[change]
    assert before in NAMED
    shutil.copytree(made_before, tmp_path / "state")
    changed = read_config(written(tmp_path, NAMED.replace(before, after)))
    with pytest.raises(ValueError, match=r"models\.spam\.\w+ is not what the model in .* was made with.*confide succ"):
        open_desk("spam", changed.models["spam"])
    opens_again(tmp_path)


@pytest.mark.parametrize("change", [
    "a larger epsilon", "a smaller epsilon", "unit_labels", "a range", "a renamed column", "another kind", "rounds",
    "units", "after a halt", "a monitor",
])  # fmt: skip
def test_a_folder_of_before_entries_were_written_is_held_against_its_model(
    tmp_path: Path, made_before: Path, change: str
) -> None:
    shutil.copytree(made_before, tmp_path / "state")
    (tmp_path / "state" / "spam" / "entries.json").unlink()
    with pytest.raises(ValueError, match="is not what the model"):
        open_desk("spam", read_config(written(tmp_path, NAMED.replace(*CHANGES[change]))).models["spam"])
    opens_again(tmp_path)


def test_every_entry_of_a_model_is_promised_or_only_serves() -> None:
    """A new entry is part of the promise until somebody says that it is not."""
    where = {"folder", "ledger", "schema_file", "predecessor"}  # of the last one the model itself knows what counts
    config = ModelConfig(folder=Path("a"), labels=["a", "b"], columns=2)
    assert {*promised(config), *SERVING, *where} == set(ModelConfig.model_fields)
    assert not {*promised(config)} & {*SERVING, *where}


def test_what_only_serves_is_taken_and_the_log_says_so(tmp_path: Path) -> None:
    def opened(text: str) -> list[dict[str, Any]]:
        said = io.StringIO()
        service = build(read_config(written(tmp_path, text)), open_desk, Log(said))
        for model in service.models.values():
            model.owner.close()
        return [json.loads(line) for line in said.getvalue().splitlines()]

    assert not [line for line in opened(NAMED) if line["event"] == "taken"]
    lines = opened(NAMED.replace("save_every = 50", "save_every = 60\nrelease_every = 0.5"))
    assert [line["entry"] for line in lines if line["event"] == "taken"] == ["save_every", "release_every"]


def test_a_schema_that_moves_into_the_file_changes_nothing(tmp_path: Path) -> None:
    open_desk("spam", read_config(written(tmp_path, NAMED)).models["spam"]).close()
    (tmp_path / "spam.toml").write_text(COLUMNS.replace("models.spam.", ""))
    moved = NAMED.replace(COLUMNS, "").replace('units = "people"', 'units = "people"\nschema = "spam.toml"')
    open_desk("spam", read_config(written(tmp_path, moved)).models["spam"]).close()


@pytest.mark.parametrize(
    ("declared", "entry", "words"),
    [("unit = 'patient'\n", 'units = "rounds"', 'say units = "people"'),
     ("labels = ['yes', 'no']\n", 'units = "people"', "labels contradicts")],
)  # fmt: skip
def test_what_a_schema_declares_is_not_dropped(tmp_path: Path, declared: str, entry: str, words: str) -> None:
    (tmp_path / "spam.toml").write_text(declared + COLUMNS.replace("models.spam.", ""))
    text = SMALL.replace("columns = 2", 'schema = "spam.toml"').replace('units = "people"', entry)
    with pytest.raises(ValueError, match=words):
        open_desk("spam", read_config(written(tmp_path, text)).models["spam"])
    assert not (tmp_path / "state").exists()


def test_a_model_may_have_its_owner_elsewhere(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, SMALL + AWAY.replace("spam", "news")))
    assert list(config.models) == ["spam"] and config.elsewhere["news"].owner == "http://127.0.0.1:8000"
    shown = EXAMPLE.replace("# [models.news]", "[models.news]").replace("# owner = ", "owner = ")
    assert list(read_config(written(tmp_path, shown)).elsewhere) == ["news"]
    signed = ["token", str(written(tmp_path, AWAY)), "--subject", "ann", "--model", "spam"]
    assert CliRunner().invoke(command_line, signed).exit_code == 0


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIDE_PUBLIC__PORT", "9999")
    monkeypatch.setenv("CONFIDE_INSECURE_SEED", "7")
    config = read_config(written(tmp_path))
    assert config.public.port == 9999 and config.insecure_seed == 7


def test_doors_are_made_as_the_file_says(tmp_path: Path) -> None:
    (tmp_path / "issuer.pem").write_text("s" * 64)
    (tmp_path / "issuer.pem").chmod(0o600)
    table = 'kind = "jwt"\n[doors.jwt]\nkey = "issuer.pem"\nalgorithms = ["HS256"]\naudience = "a"\nissuer = "i"\n'
    assert isinstance(door_of(read_config(written(tmp_path, f"{SMALL}[doors]\n{table}")).doors), JwtDoor)
    table = 'kind = "proxy"\n[doors.proxy]\nheader = "x-user"\ntrusted = ["127.0.0.1"]\n'
    assert isinstance(door_of(read_config(written(tmp_path, f"{SMALL}[doors]\n{table}")).doors), ProxyDoor)


class Process:
    """`confide serve` as a deployment runs it; all that it writes is kept."""

    def __init__(self, path: Path, **environment: str) -> None:
        command = [sys.executable, "-m", "confide", "serve", str(path)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.running = subprocess.Popen(command, env={**os.environ, **environment}, **pipes)
        self.written = list[str]()
        doors = read_config(path).doors
        assert self.running.stderr is not None
        for line in self.running.stderr:
            self.written.append(line)
            if '"serving"' in line:
                break
        else:
            raise AssertionError("".join(self.written))
        told = json.loads(line)
        self.public, self.private = (f"http://127.0.0.1:{told[door]}" for door in ("public", "operator"))
        self.asker = Tokens("asker", Keys.read(doors.asker_keys))
        self.operator = Tokens("operator", Keys.read(doors.operator_keys)).sign("op", expires=600.0)
        self.reading = threading.Thread(target=lambda: self.written.extend(self.running.stderr or ()))
        self.reading.start()

    def client(self, model: str = "spam") -> confide.Client:
        def token(who: str) -> str:
            return self.asker.sign(who or "nobody", expires=600.0)

        return confide.Client(self.public, token, model, operator=(self.private, self.operator))

    def get(self, path: str) -> str:
        request = urllib.request.Request(self.private + path, headers={"authorization": f"Bearer {self.operator}"})
        with urllib.request.urlopen(request, timeout=30) as told:
            return str(told.read().decode())

    def end(self, number: signal.Signals) -> int:
        self.running.send_signal(number)
        code = self.running.wait(60)
        self.reading.join(60)
        assert self.running.stdout is not None and self.running.stderr is not None
        self.written.append(self.running.stdout.read())
        self.running.stdout.close()
        self.running.stderr.close()
        return code


@contextlib.contextmanager
def process(path: Path, **environment: str) -> Iterator[Process]:
    made = Process(path, **environment)
    try:
        yield made
    finally:
        if made.running.poll() is None:
            made.end(signal.SIGKILL)


def test_a_process_that_is_killed_and_one_that_is_stopped_forget_nothing(tmp_path: Path) -> None:
    """Also: all that they write has nothing of what people sent."""
    path = written(tmp_path)
    with process(path) as first, first.client() as client:
        assert client.guarantee.secure and client.units == "people"
        kept = client.predict([8675309.25, 2.0], unit="canary-subject")
        done = client.predict([1.0, 8675309.25], unit="canary-subject")
        client.learn(done.ticket, "yes")
        client.teach([1.0, 2.0], "no", unit="canary-subject")
        with pytest.raises(ValueError):
            client.predict("canary-x", unit="canary-subject")
        assert client.rounds == 3 and first.end(signal.SIGKILL) != 0
    with process(path) as second, second.client() as again:
        own, private = second.get("/metrics"), json.loads(second.get("/models/spam"))["private"]
        assert again.rounds == 3 and private["labels"] == 1
        again.hold(kept.ticket, "bob")
        with pytest.raises(TicketError, match="not a ticket of yours"):
            again.learn(kept.ticket, "yes")
        for ticket in (kept.ticket, done.ticket):
            again.hold(ticket, "canary-subject")
            again.learn(ticket, "yes")  # the second is acknowledged again, and not learned again
        with pytest.raises(TicketError):
            again.learn(done.ticket, "no")
        assert json.loads(second.get("/models/spam"))["private"]["labels"] == 2
        own += second.get("/metrics")
        assert second.end(signal.SIGTERM) == 0
    events = [json.loads(line)["event"] for line in second.written if line]
    told = [event for event in events if event != "warning"]  # of what is odd in so small a plan
    assert told == ["open", "learns", "serving", "stopping", "stopped", "closed"] and events.index("warning") == 2
    everything = "".join((*first.written, *second.written, own))
    for canary in ("canary", "8675309", kept.ticket, done.ticket, "tokens:"):
        assert canary not in everything
    assert 'confide_ledger{model="spam",number="seconds"}' in own
    open_desk("spam", read_config(path).models["spam"]).close()  # it was given back


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `confide serve` changes in its process is put back."""
    root, interval = logging.getLogger(), sys.getswitchinterval()
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    before = root.handlers[:], root.level
    yield
    root.handlers, root.level = before
    logging.getLogger("uvicorn.access").disabled = False
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("quiet")
def test_a_server_that_cannot_start_says_why_in_a_sentence(tmp_path: Path) -> None:
    path = written(tmp_path)

    def refused(*arguments: str) -> str:
        return str(CliRunner().invoke(command_line, ["serve", *arguments]).exception)

    path.write_text(SMALL.replace("columns = 2\n", 'columns = { urgent = "categry" }\n'))
    assert refused(str(path)).startswith(f"{path}: models.spam: column 'urgent' is declared as 'categry': take one of")
    path.write_text(SMALL.replace('labels = ["no", "yes"]', 'labels = ["no"]'))
    assert refused(str(path)).startswith(f"{path}: models.spam: say which labels there are: two or more")
    written(tmp_path)
    with contextlib.closing(open_desk("spam", read_config(path).models["spam"])):
        assert "another process" in refused(str(path)) or "in use" in refused(str(path))
    path.write_text(SMALL.replace("[operator]\n", '[operator]\nhost = "192.0.2.1"\n'))
    assert "cannot listen on 192.0.2.1:0" in refused(str(path))
    assert "--example" in refused() and "cannot read" in refused(str(tmp_path / "nowhere.toml"))


class Outside:
    """A client whose tickets are called by their rounds: two worlds' tickets are signed with different keys."""

    def __init__(self, client: confide.Client) -> None:
        self._client, self._tickets = client, {"": ""}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def _answer(self, answer: Answer) -> Answer:
        if not answer.ticket:
            return answer
        name = f"the ticket of round {answer.ticket.split('-')[1]}"
        self._tickets[name] = answer.ticket
        return replace(answer, ticket=name)

    def predict(self, x: Any, unit: Any = None) -> Answer:
        return self._answer(self._client.predict(x, unit))

    def predict_many(self, xs: Any, units: Any = None) -> list[Answer]:
        return [self._answer(answer) for answer in self._client.predict_many(xs, units)]

    def learn(self, ticket: str, y: Any) -> None:
        self._client.learn(self._tickets[ticket], y)

    def learn_many(self, tickets: Any, ys: Any) -> None:
        self._client.learn_many([self._tickets[one] for one in tickets], ys)


class Choosy(Outside):
    """Broken: what cannot be read takes no round, and everybody can see that."""

    def predict(self, x: Any, unit: Any = None) -> Answer:
        if isinstance(x, str):
            raise ValueError("x must be a dict of features, or a one-dimensional array")
        return super().predict(x, unit)


def steps(others: int) -> list[Step | Hidden]:
    """Ann asks, teaches, brings labels and is forgotten, otherwise in each world; everybody else does the same."""
    script: list[Step | Hidden] = [
        Hidden(Teach([3.0, 1.0], "yes", "ann"), None),
        Hidden(Ask([1.0, 2.0], "ann"), Ask([-9.0, 4.0], "ann")),
        Hidden(Ask([1.0, 2.0], "ann"), Ask("unreadable", "ann")),
        Hidden(Label(1, "yes"), None),
        Hidden(
            AskMany([[1.0, 1.0], [5.0, 5.0], [2.0, 0.0]], ["bob", "ann", "eve"]),
            AskMany([[1.0, 1.0], None, [2.0, 0.0]], ["bob", "ann", "eve"]), rows=(1,),
        ),
        LabelMany([3, 5], ["yes", "no"]),
    ]  # fmt: skip
    for i in range(6, 6 + others):
        script += [Ask([i % 3 - 1.0, 1.0], f"p{i % 9}"), Label(i, "yes" if i % 3 else "no")]
        if i == 10:
            script += [Ask(None, "eve"), Hidden(Forget("ann"), None), Label(11, "yes"), Label(11, "unheard of")]
    return script


def test_two_worlds_and_games_against_a_seeded_process(tmp_path: Path) -> None:
    """What everybody else sees is compared step by step; the guarantee says that a seed promises nothing."""
    copies = "rounds = 60\ncopies = 30\nunsure = 45\nsilent = 12\nguide = false"
    model = SMALL[SMALL.index("[models") :].replace("rounds = 400", copies)
    text = SMALL[: SMALL.index("[models")] + "".join(model.replace("spam", f"m{i}") for i in range(8))
    with process(written(tmp_path, text), CONFIDE_INSECURE_SEED="11") as one:
        clients = [one.client(f"m{i}") for i in range(8)]
        assert not clients[0].guarantee.secure and "insecure: seeded" in str(clients[0].guarantee)
        worlds = iter(clients)
        seen = replay(lambda rng: Outside(next(worlds)), steps(30), forced=False)
        assert seen.steps > 60 and clients[0].rounds == clients[1].rounds > 12
        with pytest.raises(AssertionError, match="what everybody sees"):
            replay(lambda rng: Choosy(next(worlds)), steps(3), forced=False)
        game = OnlineGame(lambda: next(worlds), RandomPerson(), rounds=14)
        views = [game.play(bit) for bit in (0, 1, 0, 1)]
        assert [len(view.answers) for view in views] == [14] * 4
        assert all(view.answers.count(BOTTOM) == 1 for view in views)
        for client in clients:
            client.close()
        assert one.end(signal.SIGTERM) == 0


class RandomPerson:
    """Everybody asks once, at random, and one of them is the challenge."""

    def play(self, coins: np.random.Generator) -> Any:
        at = int(coins.integers(14))
        for i in range(14):
            rows = [(coins.normal(size=2), "yes" if coins.integers(2) else "no") for _ in range(2)]
            yield Round(*rows, challenge=True, unit="ann") if i == at else Round(rows[0], unit=f"p{i}")


def test_a_hangup_saves_and_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "confide.toml"
    path.write_text(SMALL.replace("port = 0", "port = {}").format(*free_ports(2)))
    nursery = Nursery(path)
    try:
        nursery.start()
        with confide.Client(nursery.public, nursery.asker.sign("ann", expires=600.0), "spam") as client:
            client.predict([1.0, 2.0])
            saved = [one for one in (tmp_path / "state").rglob("*") if one.is_file() and "ledger" not in one.name]
            before = {one: one.stat().st_mtime_ns for one in saved}
            os.kill(nursery.pid, signal.SIGHUP)
            until = time.monotonic() + 30
            while '"event": "saved"' not in "".join(nursery.written) and time.monotonic() < until:
                time.sleep(0.02)
            assert any(one.stat().st_mtime_ns != mtime for one, mtime in before.items() if one.exists())
            assert client.predict([1.0, 2.0]).label in ("no", "yes") and client.rounds == 2
        assert nursery.end(signal.SIGTERM) == 0
    finally:
        nursery.close()


def test_a_hangup_takes_new_keys_and_says_what_of_the_file_waits_for_a_start(tmp_path: Path) -> None:
    path = tmp_path / "confide.toml"
    text = SMALL.replace("port = 0", "port = {}").format(*free_ports(2))
    path.write_text(text)
    nursery = Nursery(path)

    def hung_up(event: str) -> dict[str, str]:
        """What the log says of one more hangup."""
        before = len(nursery.written)
        os.kill(nursery.pid, signal.SIGHUP)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            for line in nursery.written[before:]:
                if f'"event": "{event}"' in line:
                    return dict(json.loads(line))
            time.sleep(0.02)
        raise AssertionError(nursery.written[before:])

    def admitted(token: str) -> bool:
        asked = urllib.request.Request(
            f"{nursery.public}/models/spam/ask", b'{"x": [1.0, 2.0]}', {"authorization": f"Bearer {token}"}
        )
        try:
            return bool(urllib.request.urlopen(asked, timeout=30).status == 200)
        except urllib.error.HTTPError as error:
            assert error.code == 401
            return False

    try:
        nursery.start()
        keys = read_config(path).doors.asker_keys
        old = nursery.asker.sign("ann", expires=600.0)
        line = f"new {'7' * 64}\n"
        new = Tokens("asker", Keys({"new": bytes.fromhex("7" * 64)})).sign("ann", expires=600.0)
        assert admitted(old) and not admitted(new)
        keys.write_text(keys.read_text() + line)
        hung_up("reloaded")
        assert admitted(old) and admitted(new)
        keys.write_text("no keys at all")
        assert "is no file of keys" in hung_up("not reloaded")["why"]
        assert admitted(old) and admitted(new), "what was there stays"
        keys.write_text(line)
        hung_up("reloaded")
        assert not admitted(old) and admitted(new), "a key that is gone ends its tokens at once"
        path.write_text(text + "save_every = 77\n")
        assert hung_up("for the next start")["entry"] == "models.spam"
        path.write_text("nonsense")
        assert "is not valid TOML" in hung_up("not reloaded")["why"]
        assert nursery.end(signal.SIGTERM) == 0
    finally:
        nursery.close()


MAIL = {"words": "Dear all,\n" + "see the minutes of yesterday below; häßlich. " * 250}


def test_an_ordinary_mail_fits_where_a_column_is_a_text(tmp_path: Path) -> None:
    """What does not fit takes its round, as anything that cannot be read does."""
    text = SMALL.replace("columns = 2", 'columns = { words = "text", links = "number" }')
    model = read_config(written(tmp_path, text)).models["spam"]
    assert len(MAIL["words"].encode()) > 11_000 and room(model) == 16_384
    with contextlib.closing(open_desk("spam", model)) as desk:
        asked = desk.ask([Question("ann", "1", MAIL), Question("ann", "2", {"words": "a" * 20_000})])
        assert asked[0].answer is not None and asked[1].refusal is not None and asked[1].refusal.kind == "malformed"
        assert desk.public()["rounds"] == 2 and desk.public()["room"] == 16_384
    assert room(read_config(written(tmp_path, text + "room = 100\n")).models["spam"]) == 100
    text = text.replace('"text"', '"category"').replace("state/spam", "state/other")
    assert room(read_config(written(tmp_path, text)).models["spam"]) == 512


def test_numbers_have_the_room_that_they_need(tmp_path: Path) -> None:
    """Whatever numbers they are, with any of them missing; and a model that has more keeps what it was made with."""
    for columns in (1, 2, 20):
        text = SMALL.replace("columns = 2", f"columns = {columns}")
        found = room(read_config(written(tmp_path, text)).models["spam"])
        longest = [-2.2250738585072014e-308] * columns
        packed = [pack(longest), pack([*longest[1:], None]), pack([None] * columns)]
        assert all(one is not None and len(one) <= found for one in packed) and found <= 512
    written(tmp_path, SMALL + "room = 512\n")
    open_desk("spam", read_config(tmp_path / "confide.toml").models["spam"]).close()
    model = read_config(written(tmp_path)).models["spam"]
    with contextlib.closing(open_desk("spam", model)) as desk:
        assert room(model) == 512 and desk.public()["room"] == 512


@pytest.mark.parametrize(("more", "words"), [("", "first label of"), ("unit_labels = 7\n", "first 7 labels of")])
def test_the_start_says_how_much_of_one_person_is_learned(tmp_path: Path, more: str, words: str) -> None:
    said = io.StringIO()
    for units in ("people", "rounds"):
        text = SMALL.replace("state/spam", f"state/{units}").replace('"people"', f'"{units}"')
        service = build(read_config(written(tmp_path, text + more * (units == "people"))), open_desk, Log(said))
        service.models["spam"].owner.close()
    learns = [json.loads(line)["learns"] for line in said.getvalue().splitlines() if '"learns"' in line]
    assert len(learns) == 1 and words in learns[0] and "unit_labels" in learns[0]
