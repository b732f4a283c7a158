"""The client is a mechanism: it passes every mechanism's suite, over real connections, and takes no round twice."""

from __future__ import annotations

import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import uvicorn

import confide
from confide import POP, StateError
from confide.games import OnlineGame, RandomAdversary
from confide.learners import LogisticRegression
from confide.pop.base import Mechanism
from confide.service.app import Model, Service
from confide.service.doors import Tokens
from confide.service.operators import operator_app
from confide.service.owner import Owner
from confide.service.public import public_app
from tests import test_mechanisms as suite
from tests.service.desks import ASKERS, PLAN, MemoryDesk, operator, pop, service

ASKER = Tokens("asker", ASKERS)
OPERATOR = operator()["authorization"].removeprefix("Bearer ")


class Running:
    """A service on two real ports, to which models can be added."""

    def __init__(self) -> None:
        self.service: Service = service()
        self.models: dict[str, Model] = dict(self.service.models)
        self.service.models = self.models
        self.sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.urls = [f"http://127.0.0.1:{one.getsockname()[1]}" for one in self.sockets]
        quiet = {"log_config": None, "access_log": False, "lifespan": "off", "ws": "none"}
        apps = public_app(self.service), operator_app(self.service)
        self.servers = [uvicorn.Server(uvicorn.Config(app, **quiet)) for app in apps]
        pairs = zip(self.servers, self.sockets, strict=True)
        self.threads = [threading.Thread(target=server.run, args=([one],), daemon=True) for server, one in pairs]
        for thread in self.threads:
            thread.start()

    def add(self, made: POP) -> MemoryDesk:
        desk = MemoryDesk(f"m{len(self.models)}", made)
        self.models[desk.name] = Model(Owner(desk, self.service.metrics))
        return desk

    def client(self, desk: MemoryDesk, **more: Any) -> confide.Client:
        """A client for everybody: each person with a token of their own."""

        def token(who: str) -> str:
            return ASKER.sign(who or "nobody", expires=60.0)

        return confide.Client(self.urls[0], token, desk.name, operator=(self.urls[1], OPERATOR), **more)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    running = Running()
    yield running
    for server in running.servers:
        server.should_exit = True
    for thread in running.threads:
        thread.join(10)
    for model in running.models.values():
        model.owner.close()


MAKERS: dict[str, Callable[[], POP]] = {"rounds": pop, "people": lambda: pop(units="people")}
SUITE = {
    name: test
    for name, test in inspect.getmembers(suite, inspect.isfunction)
    if name.startswith("test_") and "make" in (given := inspect.signature(test).parameters) and "tmp_path" not in given
}


@pytest.mark.parametrize("units", MAKERS)
@pytest.mark.parametrize("name", SUITE)
def test_it_passes_the_suite_of_all_mechanisms(running: Running, name: str, units: str) -> None:
    test = SUITE[name]

    def make() -> Mechanism:
        return running.client(running.add(MAKERS[units]()))

    if "x" in inspect.signature(test).parameters:
        for x in suite.QUESTIONS:
            test(make=make, x=x)
    else:
        test(make=make)


def test_the_suite_is_not_empty() -> None:
    assert len(SUITE) >= 6 and "test_many_are_as_one_by_one" in SUITE


def test_what_is_asked_over_http_is_answered_as_by_the_pop_itself(running: Running) -> None:
    xs, ys = [[i % 3, i % 2] for i in range(50)], ["no" if i % 2 else "yes" for i in range(50)]
    there, here = confide.evaluate(running.client(running.add(pop())), xs, ys), confide.evaluate(pop(), xs, ys)
    assert there.answers.tolist() == here.answers.tolist() and there.source.tolist() == here.source.tolist()


def test_games_are_played_against_it(running: Running) -> None:
    def make() -> Any:
        made = POP(LogisticRegression(), PLAN, labels=[0, 1], features=2, seed=7)
        return running.client(running.add(made))

    game = OnlineGame(make, RandomAdversary(rounds=8, features=2), rounds=8)
    assert [game.play(bit).answers.count(confide.games.BOTTOM) for bit in (0, 1)] == [1, 1]


def whole(connection: socket.socket) -> bytes:
    """A request or a response, head and body."""
    text = b""
    while more := connection.recv(65536):
        text += more
        head, ended, body = text.lower().partition(b"\r\n\r\n")
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if ended and len(body) >= int(length or b"0"):
            break
    return text


class Cut:
    """A place in between that passes a request on, and closes the connection instead of passing the answer back."""

    def __init__(self, url: str, cuts: int) -> None:
        self.left, self.port = cuts, int(url.rsplit(":", 1)[1])
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                here, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(here,), daemon=True).start()

    def _pass(self, here: socket.socket) -> None:
        with closing(here), closing(socket.create_connection(("127.0.0.1", self.port))) as there:
            while asked := whole(here):
                there.sendall(asked)
                told = whole(there)
                if asked.startswith(b"POST") and self.left > 0:
                    self.left -= 1
                    return
                here.sendall(told)


def test_a_lost_answer_is_asked_for_again_and_takes_one_round(running: Running) -> None:
    desk = running.add(pop())
    cut = Cut(running.urls[0], cuts=2)
    with closing(cut.listening):
        client = confide.Client(cut.url, ASKER.sign("ann", expires=60.0), desk.name)
        answer = client.predict([1.0, 2.0])
        assert cut.left == 0 and client.rounds == 1 == desk.pop.rounds and answer.label in ("no", "yes")
        cut.left = 1
        answers = client.predict_many([[1.0, 2.0]] * 5)
        assert desk.pop.rounds == 6 and len({one.ticket for one in answers}) == 5
        with pytest.raises(ConnectionError, match="cannot be reached"):
            confide.Client("http://127.0.0.1:1", "", "spam", tries=2)


def test_a_service_that_is_busy_is_asked_again_and_then_given_up(running: Running, monkeypatch: Any) -> None:
    slept = list[float]()
    monkeypatch.setattr("confide.service.client.time.sleep", slept.append)
    desk = running.add(pop())
    client = running.client(desk, tries=3)
    running.models[desk.name].owner.drain()
    with pytest.raises(StateError, match="takes no questions now"):
        client.predict([1.0, 2.0])
    assert slept == [1.0, 1.0] and desk.pop.rounds == 0


def test_a_client_with_one_token_speaks_for_one_person(running: Running) -> None:
    desk = running.add(pop(units="people"))
    client = confide.Client(running.urls[0], ASKER.sign("ann", expires=60.0), desk.name)
    client.learn(client.predict([1.0, 2.0]).ticket, "yes")
    with pytest.raises(ValueError, match="the person in its token alone"):
        client.predict([1.0, 2.0], unit="bob")
    with pytest.raises(ValueError, match="are the operator's"):
        client.teach([1.0, 2.0], "yes")
    with pytest.raises(ValueError, match="no such model"):
        confide.Client(running.urls[0], "", "nix")
    with pytest.raises(ValueError, match="not a token"):
        confide.Client(running.urls[0], "nonsense", desk.name).predict([1.0, 2.0])
    with pytest.raises(ValueError, match="url must be like"):
        confide.Client("ftp://127.0.0.1", "", "spam")
