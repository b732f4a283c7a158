"""What requests and responses look like: one description, with worked examples, for reading them and for OpenAPI.

What is wrong with a request is told by the place, in names that stand here, never by the value.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat
from operator import itemgetter
from typing import Any, Generic, Literal, TypeVar, cast, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from confide.service.base import Problem, Question, Refusal, Reply, Taught

__all__ = [
    "ASK", "ASK_MANY", "AUDIT", "DRAIN", "FORMS", "HISTORY", "LABEL", "LABEL_MANY", "PERSON", "Answer", "Answers",
    "BadForm", "F", "Failure", "Form", "Forms", "ImportResult", "Taken", "Takens", "answer", "failure",
]  # fmt: skip

_OWN, _NUMBERS = secrets.token_hex(12), count(1)  # names that no other request has, in this process or another
F = TypeVar("F", bound=BaseModel)
Label = StrictStr | StrictBool | StrictInt | StrictFloat


class BadForm(Problem):
    """A body that is not of the form that the operation takes: no question, so it takes no round."""

    def __init__(self, message: str) -> None:
        super().__init__(422, "form", message)


class Form(BaseModel):
    """A request's body, and nothing beside it."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few(cls, given: Any) -> Any:
        """One error for any number of other entries: each costs more than a sender pays for it."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields):
            raise ValueError("more entries than there are")
        return given


class Ask(Form):
    """One question."""

    x: Any = Field(
        description="An object of features by name, or an array of numbers, as the model takes it.",
        examples=[{"words": "free money now", "links": 3}],
    )
    id: str | None = Field(
        default=None, min_length=1, max_length=100, examples=["q-0001"],
        description="The request's own name. A retry with it gets the stored answer, and takes no round.",
    )  # fmt: skip

    def asked(self, subject: str) -> list[Question]:
        """As the desk takes it; without an id it gets one that nobody else has."""
        return [Question(subject, f"{_OWN}-{next(_NUMBERS)}" if self.id is None else self.id, self.x)]


class AskMany(Form):
    """Several questions, answered in order."""

    questions: list[Ask] = Field(fail_fast=True, description="At most as many as the service's limits say.")

    def asked(self, subject: str) -> list[Question]:
        """As the desk takes them."""
        return [question for one in self.questions for question in one.asked(subject)]


class LabelOne(Form):
    """The right label of an answered question."""

    ticket: str = Field(
        max_length=1000, examples=["the ticket of the answer"],
        description="As it came with the answer: good once, for its holder alone.",
    )  # fmt: skip
    label: Label = Field(description="One of the model's labels.", examples=["spam"])

    def taught(self, subject: str) -> list[Taught]:
        """As the desk takes it."""
        return [Taught(subject, self.ticket, self.label)]


class LabelMany(Form):
    """Several labels, taken in order."""

    labels: list[LabelOne] = Field(fail_fast=True)

    def taught(self, subject: str) -> list[Taught]:
        """As the desk takes them."""
        return [Taught(subject, one.ticket, one.label) for one in self.labels]


class Record(Form):
    """A labelled record that was never asked. Whatever is wrong with one, it takes its row, and the others theirs."""

    x: Any = Field(default=None, examples=[{"words": "lunch on Monday?", "links": 0}])
    label: Any = Field(default=None, description="One of the model's labels.", examples=["ham"])
    subject: Any = Field(default=None, description="Whose it is, where people are protected.", examples=["ann"])


class History(Form):
    """Labelled records to learn from."""

    rows: list[Record] = Field(fail_fast=True)
    id: str | None = Field(
        default=None, min_length=1, max_length=100, examples=["i-0001"],
        description="The import's own name. A retry with it is acknowledged again, and teaches nothing.",
    )  # fmt: skip


class Person(Form):
    """Somebody, as their token names them."""

    subject: str = Field(min_length=1, max_length=256, examples=["ann"])


class Drain(Form):
    """Whether questions are refused from now on."""

    on: bool = Field(default=True, examples=[True])


class Audit(Form):
    """How large an audit of a fresh POP is."""

    games: int = Field(
        ge=20, le=100_000, description="Games at each bit: more find more, and take longer.", examples=[1000]
    )


class Reason(BaseModel):
    """Why a request was not served."""

    kind: str = Field(examples=["ticket"])
    message: str = Field(examples=["this ticket was used"])


class Failure(BaseModel):
    """What is returned instead."""

    error: Reason


class Answer(BaseModel):
    """An answer, for its asker's eyes only; in a batch, `error` where the question was refused."""

    id: str = Field(examples=["q-0001"])
    round: int = Field(description="The round's number: public.", examples=[17])
    label: Label | None = Field(default=None, examples=["spam"])
    sure: bool = Field(default=False, description="Whether the copies answered.", examples=[True])
    source: Literal["copies", "lean", "guide", "fallback"] | None = Field(default=None, examples=["copies"])
    guide: Label | None = Field(
        default=None, description="The guide's own label, which everyone may know.", examples=["spam"]
    )
    probabilities: dict[str, float] | None = Field(
        default=None, examples=[None],
        description="Where labels alone are protected: how likely each label is, by its text. It is public.",
    )  # fmt: skip
    ticket: str | None = Field(
        default=None, description="Bring it back once, with the right label.", examples=["0-17-…"]
    )
    again: bool = Field(default=False, description="Whether this is a retry's stored answer.", examples=[False])
    error: Reason | None = None


class Answers(BaseModel):
    """Answers in the order of the questions."""

    answers: list[Answer]


class Taken(BaseModel):
    """Whether a label was taken: it is durable then."""

    taken: bool = Field(examples=[True])
    error: Reason | None = None


class Takens(BaseModel):
    """For each label, in order."""

    results: list[Taken]


class Refused(BaseModel):
    """A record that was not learned."""

    row: int
    error: Reason


class ImportResult(BaseModel):
    """What became of a history."""

    taken: int = Field(examples=[1])
    refused: list[Refused] = Field(examples=[[]])


class Forms(Generic[F]):
    """Reads bodies of one form.

    Parameters
    ----------
    form
        The form.
    plain
        Gives the same of a body that has the form, as JSON gave it, in less time; None where it cannot tell.
    """

    def __init__(self, form: type[F], plain: Callable[[Any], Any] | None = None) -> None:
        self.form, self.name, self._plain = form, form.__name__, plain
        self._adapter = TypeAdapter(form)
        self._rows = next((name for name, one in form.model_fields.items() if get_origin(one.annotation) is list), "")

    def read(self, body: bytes, check: Callable[[int], None] | None = None) -> F:
        """The body, if it has the form; `BadForm` otherwise, with the place and nothing of what stands there.

        `check` is told how many rows there are before any is looked at, and of what is wrong only the first is looked
        for: whoever sends a body pays for as much of it as anybody reads.
        """
        try:
            given = from_json(body or b"{}")
        except ValueError:
            raise BadForm("the body is not JSON") from None
        rows = given.get(self._rows) if isinstance(given, dict) else None
        if check is not None and isinstance(rows, list):
            check(len(rows))
        if self._plain is not None and (found := self._plain(given)) is not None:
            return cast(F, found)
        try:
            return self._adapter.validate_python(given)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part) for part in found["loc"] if isinstance(part, int) or part in _KNOWN)
            place = f", at {where}" if where else ""
            raise BadForm(f"the body is not of this operation's form{place}: see /docs") from None

    @property
    def schema(self) -> dict[str, Any]:
        """Its description, for OpenAPI."""
        return self.form.model_json_schema(ref_template="#/components/schemas/{model}")


@dataclass(slots=True, repr=False)
class _Asked:
    """`Ask`, or `AskMany`, that was read plainly: the questions as they came."""

    questions: list[dict[str, Any]]

    def asked(self, subject: str) -> list[Question]:
        """As `Ask.asked`."""
        ids = [one["id"] if "id" in one else f"{_OWN}-{next(_NUMBERS)}" for one in self.questions]
        return [*map(_QUESTION, zip(repeat(subject), ids, map(_X, self.questions), strict=False))]


@dataclass(slots=True, repr=False)
class _Brought:
    """`LabelOne`, or `LabelMany`, that was read plainly: the labels as they came."""

    labels: list[dict[str, Any]]

    def taught(self, subject: str) -> list[Taught]:
        """As `LabelOne.taught`."""
        return [*map(_TAUGHT, zip(repeat(subject), map(_TICKET, self.labels), map(_LABEL, self.labels), strict=False))]


def _is_ask(given: Any) -> bool:
    """Whether a body has the form `Ask`; False where it cannot tell: tests/service/test_forms.py compares them."""
    if type(given) is not dict or "x" not in given:
        return False
    if len(given) == 1:
        return True
    id = given.get("id")
    return len(given) == 2 and type(id) is str and 1 <= len(id) <= 100


def _is_label(given: Any) -> bool:
    """`LabelOne`, likewise."""
    if type(given) is not dict or len(given) != 2:
        return False
    ticket = given.get("ticket")
    return type(ticket) is str and len(ticket) <= 1000 and type(given.get("label")) in _LABELS


_LABELS = (str, int, bool, float)
_X, _TICKET, _LABEL = itemgetter("x"), itemgetter("ticket"), itemgetter("label")
_QUESTION: Callable[[Any], Question] = partial(tuple.__new__, Question)
_TAUGHT: Callable[[Any], Taught] = partial(tuple.__new__, Taught)


def _all(given: Any, name: str, plain: Callable[[Any], bool]) -> list[Any] | None:
    """The only entry of a body, a list of rows that are all plain."""
    rows = given.get(name) if type(given) is dict and len(given) == 1 else None
    return rows if type(rows) is list and all(map(plain, rows)) else None


def _ask(given: Any) -> _Asked | None:
    return _Asked([given]) if _is_ask(given) else None


def _ask_many(given: Any) -> _Asked | None:
    rows = _all(given, "questions", _is_ask)
    return None if rows is None else _Asked(rows)


def _label(given: Any) -> _Brought | None:
    return _Brought([given]) if _is_label(given) else None


def _label_many(given: Any) -> _Brought | None:
    rows = _all(given, "labels", _is_label)
    return None if rows is None else _Brought(rows)


ASK, ASK_MANY = Forms(Ask, _ask), Forms(AskMany, _ask_many)
LABEL, LABEL_MANY = Forms(LabelOne, _label), Forms(LabelMany, _label_many)
HISTORY, PERSON, DRAIN, AUDIT = Forms(History), Forms(Person), Forms(Drain), Forms(Audit)
_ALL: tuple[Forms[Any], ...] = (ASK, ASK_MANY, LABEL, LABEL_MANY, HISTORY, PERSON, DRAIN, AUDIT)
FORMS = {one.name: one for one in _ALL}
_KNOWN = frozenset(name for one in (*_ALL, Forms(Record)) for name in one.form.model_fields)


def failure(kind: str, message: str) -> dict[str, Any]:
    """A `Failure`."""
    return {"error": {"kind": kind, "message": message}}


def answer(question: Question, asked: Reply) -> dict[str, Any]:
    """An `Answer`."""
    got, refusal = asked.answer, asked.refusal
    if got is None:
        told: dict[str, Any] = {"id": question.id, "round": asked.round, "again": asked.again}
        refusal = refusal or Refusal("malformed", "this was not answered")
    else:
        told = {
            "id": question.id, "round": asked.round, "again": asked.again, "label": got.label, "sure": got.sure,
            "source": got.source, "guide": got.guide, "ticket": got.ticket,
        }  # fmt: skip
        if got.probabilities is not None:
            told["probabilities"] = {str(label): share for label, share in got.probabilities.items()}
    if refusal is not None:
        told |= failure(refusal.kind, refusal.message)
    return told
