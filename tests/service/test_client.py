"""The client is a mechanism: it passes every mechanism's suite, over real connections, and takes no round twice."""

from __future__ import annotations

import asyncio
import inspect
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest
import uvicorn

import confide
from confide import POP, StateError, TicketError
from confide.errors import ConfideWarning
from confide.games import OnlineGame, RandomAdversary
from confide.learners import LogisticRegression
from confide.pop.base import Mechanism
from confide.service.app import Model, Service
from confide.service.asker import Asker
from confide.service.client import AsyncClient
from confide.service.doors import Tokens
from confide.service.operators import operator_app
from confide.service.owner import Owner
from confide.service.public import public_app
from confide.service.talk import Send, Told, label_of, plain, settled
from tests import test_mechanisms as suite
from tests.service.desks import ASKERS, PLAN, MemoryDesk, operator, pop, service
from tests.service.nursery import free_ports

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
        quiet = {"log_config": None, "access_log": False, "lifespan": "off", "ws": "none", "timeout_keep_alive": 30}
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

    def __init__(self, url: str, cuts: int, at: int = 0) -> None:
        self.left, self.port = cuts, int(url.rsplit(":", 1)[1])
        self.listening = socket.create_server(("127.0.0.1", at))
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
            confide.Client("http://127.0.0.1:1", "", "spam", deadline=0.2)


def test_a_service_that_is_busy_is_asked_again_and_then_given_up(running: Running) -> None:
    desk = running.add(pop())
    client = running.client(desk, deadline=0.5)  # sooner than it is told to come again
    running.models[desk.name].owner.drain()
    with pytest.raises(StateError, match="takes no questions now"):
        client.predict([1.0, 2.0])
    patient = running.client(desk)
    threading.Timer(0.3, running.models[desk.name].owner.drain, [False]).start()
    assert patient.predict([1.0, 2.0]).label in ("no", "yes") and desk.pop.rounds == 1


def played(*told: Told | None, deadline: float = 30.0) -> tuple[list[float], Any]:
    """The waits of a conversation in which this is told, None for a lost connection, and how it ends."""
    now, waits, parts = 0.0, list[float](), iter(told)
    steps = settled(Send.of("POST", "/", {"id": "a"}, None), deadline, clock=lambda: now)
    step, sent = next(steps), set()
    try:
        while True:
            if isinstance(step, Send):
                sent.add(step.body)
                said = next(parts)
                step = steps.throw(ConnectionError()) if said is None else steps.send(said)
            else:
                waits.append(step)
                now += step
                step = steps.send(None)
    except StopIteration as end:
        assert len(sent) == 1  # the same bytes each time
        return waits, end.value
    except (ConnectionError, StateError) as error:
        return waits, error


def answer(status: int, content: bytes = b"{}", **headers: str) -> Told:
    return Told(status, {name.replace("_", "-"): value for name, value in headers.items()}, content)


DONE = answer(200, b'{"label": 1}')
BUSY = b'{"error": {"kind": "busy", "message": "come again"}}'


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_the_same_request_is_sent_again_until_the_deadline(status: int) -> None:
    page = answer(status, b"<html>Bad Gateway</html>")
    waits, end = played(page, None, answer(status, BUSY, retry_after="3"), DONE)
    assert end == {"label": 1} and waits[0] <= 0.05 and waits[1] <= 0.1 and waits[2] == 3.0
    waits, end = played(*[answer(status, BUSY)] * 100)
    assert isinstance(end, StateError) and str(end) == "come again" and sum(waits) == pytest.approx(30.0)
    waits, end = played(*[page, None] * 100)
    assert isinstance(end, ConnectionError) and "cannot be reached" in str(end) and len(waits) > 15


def test_who_is_told_to_come_tomorrow_is_not_kept_waiting() -> None:
    waits, end = played(answer(429, BUSY, retry_after="86040"))
    assert waits == [] and isinstance(end, StateError) and str(end) == "come again; come again in 23 hours 54 minutes"
    day = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    assert played(answer(503, BUSY, retry_after=day))[0] == []
    assert len(played(answer(503, BUSY, retry_after="soon"), DONE)[0]) == 1


def test_a_row_that_could_not_be_made_durable_is_brought_again_with_its_batch() -> None:
    later = answer(200, b'{"results": [{"taken": true}, {"taken": false, "error": {"kind": "later"}}]}')
    waits, end = played(later, answer(200, b'{"results": [{"taken": true}, {"taken": true}]}'))
    assert len(waits) == 1 and end["results"][1] == {"taken": True}


def test_a_service_that_is_away_for_a_while_is_waited_for(running: Running) -> None:
    desk = running.add(pop())
    (port,) = free_ports(1)
    places = list[Cut]()
    threading.Timer(0.7, lambda: places.append(Cut(running.urls[0], 1, port))).start()
    client = confide.Client(f"http://127.0.0.1:{port}", ASKER.sign("ann", expires=60.0), desk.name)
    client.learn(client.predict([1.0, 2.0]).ticket, "yes")
    assert desk.pop.rounds == 1 and desk.pop.operator.taught == 1
    places[0].listening.close()


def test_a_question_with_an_id_of_its_own_takes_one_round_whoever_sends_it(running: Running) -> None:
    desk = running.add(pop())
    clients = [running.client(desk) for _ in range(2)]
    tickets = {client.predict([1.0, 2.0], id="mine").ticket for client in clients}
    assert len(tickets) == 1 and desk.pop.rounds == 1
    many = [client.predict_many([[1.0, 2.0], [3.0, 4.0]], ids=["mine", "b"]) for client in clients]
    assert [one.ticket for one in many[0]] == [one.ticket for one in many[1]] and desk.pop.rounds == 2
    with pytest.raises(ValueError, match="another question"):
        clients[0].predict([5.0, 6.0], id="mine")
    with pytest.raises(ValueError, match="1 ids for 2 rows"):
        clients[0].predict_many([[1.0, 2.0]] * 2, ids=["a"])


def test_a_client_for_an_event_loop_has_the_same_rules(running: Running) -> None:
    desk = running.add(pop(units="people"))
    cut = Cut(running.urls[0], cuts=3)

    async def main() -> None:
        def token(who: str) -> str:
            return ASKER.sign(who, expires=60.0)

        operator = running.urls[1], OPERATOR
        async with AsyncClient(cut.url, token, desk.name, operator=operator) as client:
            asked = [client.predict([1.0, 2.0], unit=f"p{i}", id=f"q{i}") for i in range(20)]
            answers = await asyncio.gather(*asked)
            assert cut.left == 0 and desk.pop.rounds == 20 and len({one.ticket for one in answers}) == 20
            await asyncio.gather(*(client.learn(one.ticket, "yes") for one in answers))
            many = await client.predict_many([[1.0, 2.0], None, [3.0, 4.0]], ["p1", "p2", "p2"])
            assert [one.error is None for one in many] == [True, False, True] and desk.pop.rounds == 23
            await client.learn_many([many[0].ticket, many[2].ticket], ["no", "no"])
            await client.teach([1.0, 2.0], "yes", unit="ann")
            await client.teach_many([[1.0, 2.0]] * 2, ["yes", "no"], ["ann", "bob"])
            await client.forget("p1")
            assert (await client.look())["rounds"] == 23 and (await client.plan()).rounds == desk.pop.plan.rounds
            with pytest.raises(confide.TicketError):
                await client.learn(answers[0].ticket, "no")
            with pytest.raises(ValueError):
                await client.predict(None, unit="eve")
        with pytest.raises(ConnectionError, match="cannot be reached"):
            await AsyncClient("http://127.0.0.1:1", "", "spam", deadline=0.1).look()

    with closing(cut.listening):
        asyncio.run(main())


def test_a_misspelt_column_is_said_once_before_it_is_sent() -> None:
    asker = Asker("token", "spam", None, 1.0, 10)
    asker.fixed = {"columns": ["links", "sender"]}
    with pytest.warns(ConfideWarning, match="spam has no column 'lniks': ignored; it has 'links', 'sender'"):
        assert isinstance(next(asker.predict({"lniks": 3, "sender": "a"})), Send)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(asker.predict_many([{"lniks": 3}]))
        asker.fixed["columns"], asker._warned = [], False
        next(asker.predict({"anything": 3}))


def test_what_json_has_no_word_for_does_not_spoil_a_row() -> None:
    row = {"a": float("nan"), "b": np.float32("inf"), "c": -(10**400), "d": 3}
    largest = sys.float_info.max
    assert plain(row) == {"a": None, "b": largest, "c": -largest, "d": 3}
    assert plain(np.array([1.5, np.nan])) == [1.5, None] and plain({"a": object()}) is None
    with pytest.raises(ValueError, match="not one of the model's labels"):
        label_of(float("nan"))


def test_a_ticket_that_another_client_got_is_brought_once_it_is_said_whose_it_is(running: Running) -> None:
    desk = running.add(pop(units="people"))
    there, here = running.client(desk), running.client(desk)
    tickets = [there.predict([1.0, 2.0], unit=who).ticket for who in ("ann", "bob", "carl")]
    with pytest.raises(TicketError, match=r"say it before, client\.hold\(ticket, unit\)"):
        here.learn(tickets[0], "yes")
    here.hold(tickets[0], "ann")
    here.learn(tickets[0], "yes")
    here.hold(tickets[2], "carl")
    with pytest.raises(TicketError, match=r"^row 0 was refused, and all good rows were learned: .*client\.hold"):
        here.learn_many([tickets[1], "", tickets[2]], ["yes"] * 3)
    there.learn(tickets[1], "yes")
    with pytest.raises(TicketError, match="used"):
        there.learn(tickets[2], "yes")


def test_a_batch_with_messy_rows_is_said_and_its_loop_goes_on(running: Running) -> None:
    client = running.client(running.add(pop()))
    with pytest.warns(ConfideWarning, match="1 of 2 questions of this call were refused"):
        answers = client.predict_many([[1.0, 2.0], [1.0, "unknown"]])
    client.learn_many([one.ticket for one in answers], ["yes", "no"])


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
