"""What clients of a service do, whichever way their bytes travel: every operation as a conversation (see `talk`)."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from confide.contained import contained
from confide.errors import ConfideWarning, TicketError
from confide.frames import rows_of, values_of
from confide.pop.base import Answer, Told, Unit, Xs
from confide.pop.batches import Unread, refuse, ticketed
from confide.service.talk import Send, Steps, error_of, label_of, person_of, plain, settled, text_of

__all__ = ["Asker", "Token"]

Token = str | Callable[[str], str]
_NAMED = 8  # columns that are named


class Asker:
    """Asks and teaches one model. Parameters as for `confide.Client`."""

    def __init__(self, token: Token, model: str, operator: str | None, deadline: float, batch: int) -> None:
        self.model, self.fixed = model, dict[str, Any]()
        self._token, self._operator, self._deadline, self._batch = token, operator, deadline, batch
        self._holders: dict[str, str] = {}
        self._warned = False

    # ------------------------------------------------------------------ looking

    def look(self, part: str = "") -> Steps[dict[str, Any]]:
        """What everyone may see of the model, as it is now."""
        path = f"/models/{quote(self.model, safe='')}{part}"
        told = yield from settled(Send.of("GET", path, None, None), self._deadline)
        if not part:
            self.fixed = told
        return told

    # ------------------------------------------------------------------ asking and teaching

    def predict(self, x: Any, unit: Unit | None = None, *, id: str | None = None) -> Steps[Answer]:
        """See `Client.predict`."""
        self._look_at([x])
        told = yield from self._post("ask", {"id": _name(id), "x": plain(x)}, self._token_of(unit))
        return self._answer(told, unit)

    def _look_at(self, rows: Any) -> None:
        """Warn, once, of names that the model does not declare: they are ignored, and a misspelt one is missing."""
        columns, strange = self.fixed.get("columns"), set[str]()
        if not columns or self._warned:
            return
        with contained:  # rows may be anything at all
            strange = {str(name) for row in rows if isinstance(row, Mapping) for name in row} - {*columns}
        if strange:
            self._warned = True
            names = ", ".join(map(repr, sorted(strange)[:_NAMED]))
            known = ", ".join(map(repr, columns[:_NAMED])) + (", …" if len(columns) > _NAMED else "")
            warnings.warn(f"{self.model} has no column {names}: ignored; it has {known}", ConfideWarning, stacklevel=5)

    def learn(self, ticket: str, y: Hashable) -> Steps[None]:
        """See `Client.learn`."""
        token = self._token_of(self._holder(text_of(ticket)), checked=False)
        yield from self._post("label", {"ticket": ticket, "label": label_of(y)}, token)

    def _holder(self, ticket: Any) -> str | None:
        """Whose token brings this ticket's label; TicketError where only they who asked for it know."""
        holder = self._holders.get(ticket) if isinstance(ticket, str) else None
        if callable(self._token) and holder is None:
            raise TicketError(
                "this client did not get this ticket, and does not know whose token to bring it with: say it before, "
                "client.hold(ticket, unit)"
            )
        return holder

    def hold(self, ticket: str, unit: Unit) -> None:
        """See `Client.hold`; it is remembered as long as the ticket is good."""
        self._holders[ticket] = person_of(unit)
        if len(self._holders) > self.fixed.get("ticket_life", len(self._holders)):  # as many rounds ago: it has expired
            del self._holders[next(iter(self._holders))]

    def forget(self, unit: Unit) -> Steps[None]:
        """See `Client.forget`."""
        yield from self._operate("forget", {"subject": person_of(unit)})

    def predict_many(
        self, xs: Xs, units: Sequence[Unit] | None = None, *, ids: Sequence[str] | None = None
    ) -> Steps[list[Answer]]:
        """See `Client.predict_many`."""
        rows, units, answers = rows_of(xs, True), values_of(units), list[Answer]()
        names = [_name(None) for _ in rows] if ids is None else list(ids)
        if len(names) != len(rows):
            raise ValueError(f"there are {len(names)} ids for {len(rows)} rows: give one for each")
        self._look_at(rows)
        for part, unit in self._parts(len(rows), units):
            questions = [{"id": name, "x": plain(row)} for name, row in zip(names[part], rows[part], strict=True)]
            told = yield from self._post("ask-many", {"questions": questions}, self._token_of(unit))
            if answers == [] and all(one.get("error", {}).get("kind") == "halted" for one in told["answers"]):
                raise error_of(410, told["answers"][0])
            answers += [self._answer(one, unit, alone=False) for one in told["answers"]]
        Unread.warn([answer.error for answer in answers if answer.error is not None], len(answers), 4)
        return answers

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> Steps[None]:
        """See `Client.learn_many`."""
        tickets, ys = values_of(tickets), values_of(ys)
        if len(tickets) != len(ys):
            raise ValueError(f"there are {len(tickets)} tickets for {len(ys)} labels: give one label for each")
        places, refused, holders = list[int](), dict[int, ValueError](), list[Unit]()
        for i in ticketed(tickets):
            try:
                holders.append(self._holder(tickets[i]) or "")
                places.append(i)
            except TicketError as error:
                refused[i] = error
        for part, unit in self._parts(len(places), holders if callable(self._token) else None):
            labels = [{"ticket": text_of(tickets[i]), "label": label_of(ys[i])} for i in places[part]]
            told = yield from self._post("label-many", {"labels": labels}, self._token_of(unit, checked=False))
            for i, one in zip(places[part], told["results"], strict=True):
                if not one["taken"]:
                    refused[i] = cast(ValueError, error_of(422, one))
        refuse(dict(sorted(refused.items())))

    def teach(self, x: Any, y: Hashable, unit: Unit | None = None) -> Steps[None]:
        """See `Client.teach`."""
        refused = yield from self._teach([x], [y], None if unit is None else [unit])
        if refused:
            raise refused[0]

    def teach_many(self, xs: Xs, ys: Sequence[Hashable], units: Sequence[Unit] | None = None) -> Steps[None]:
        """See `Client.teach_many`."""
        rows, ys, units = rows_of(xs, True), values_of(ys), values_of(units)
        if len(rows) != len(ys):
            raise ValueError(f"there are {len(rows)} records for {len(ys)} labels: give one label for each")
        refuse((yield from self._teach(rows, ys, units)))

    # ------------------------------------------------------------------ parts

    def _teach(self, rows: Any, ys: Sequence[Hashable], units: Sequence[Unit] | None) -> Steps[dict[int, ValueError]]:
        sent = [{"x": plain(row), "label": label_of(y)} for row, y in zip(rows, ys, strict=True)]
        for i, row in enumerate(sent if units is not None else ()):
            row["subject"] = person_of(cast(Sequence[Unit], units)[i])
        told = yield from self._operate("history", {"id": _name(None), "rows": sent})
        return {one["row"]: cast(ValueError, error_of(422, one)) for one in told["refused"]}

    def _operate(self, operation: str, content: Mapping[str, Any]) -> Steps[dict[str, Any]]:
        if self._operator is None:
            raise ValueError("history and forgetting are the operator's: give the client operator=(url, token)")
        send = Send.of("POST", self._path(operation), content, self._operator, operator=True)
        return settled(send, self._deadline)

    def _post(self, operation: str, content: Mapping[str, Any], token: str) -> Steps[dict[str, Any]]:
        return settled(Send.of("POST", self._path(operation), content, token), self._deadline)

    def _path(self, operation: str) -> str:
        return f"/models/{quote(self.model, safe='')}/{operation}"

    def _parts(self, rows: int, units: Sequence[Unit] | None) -> list[tuple[slice, Unit | None]]:
        """Stretches of rows that one request may hold: one person's, in order."""
        owners: Sequence[Unit | None] = [None] * rows if units is None else units
        if isinstance(owners, str | bytes) or len(owners) != rows:
            raise ValueError(f"units must be a sequence of ids, one for each of {rows} rows")
        parts, at = list[tuple[slice, Unit | None]](), 0
        while at < rows:
            end = at + 1
            while end < min(rows, at + self._batch) and owners[end] == owners[at]:
                end += 1
            parts.append((slice(at, end), owners[at]))
            at = end
        return parts

    def _token_of(self, unit: Unit | None, checked: bool = True) -> str:
        if callable(self._token):
            return self._token("" if unit is None else person_of(unit))
        if checked and unit is not None:
            raise ValueError("this client speaks for the person in its token alone: give a function from ids to tokens")
        return self._token

    def _answer(self, told: Mapping[str, Any], unit: Unit | None, alone: bool = True) -> Answer:
        if "error" in told and told["error"] is not None:
            if alone:
                raise error_of(422, told)
            return Answer(None, False, "", told["error"]["message"])
        if callable(self._token):
            self.hold(told["ticket"], "" if unit is None else unit)
        came = told["label"], told["sure"], told["ticket"], None, told["source"], told["guide"]
        if (shares := told.get("probabilities")) is None:
            return Answer(*came)
        return Told(*came, {label: shares[str(label)] for label in self.fixed["labels"]})


def _name(id: str | None) -> str:
    """The request's own name: what it was given, or one that no other has."""
    return secrets.token_hex(12) if id is None else id
