"""No body, whatever is in it, takes the service from everybody else while it is read."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic import ValidationError

from confide.service import app, forms
from confide.service.base import Problem
from confide.service.operators import operator_app
from confide.service.public import public_app
from tests.service.desks import MemoryDesk, operator, service, token
from tests.service.test_http import at, go

MANY = 5000
NAMED = b",".join(b'"a%d":0' % i for i in range(MANY))
BAD: dict[str, tuple[forms.Forms[Any], bytes]] = {
    "rows that are none": (forms.ASK_MANY, b'{"questions":[' + b",".join([b"0"] * MANY) + b"]}"),
    "rows without a part": (forms.LABEL_MANY, b'{"labels":[' + b",".join([b"{}"] * MANY) + b"]}"),
    "records that are none": (forms.HISTORY, b'{"rows":[' + b",".join([b"0"] * MANY) + b"]}"),
    "other entries": (forms.ASK, b'{"x":0,' + NAMED + b"}"),
    "other entries of a row": (forms.ASK_MANY, b'{"questions":[{"x":0,' + NAMED + b"}]}"),
    "a label that is none": (forms.LABEL, b'{"ticket":"a","label":[' + b",".join([b"0"] * MANY) + b"]}"),
}


@pytest.mark.parametrize("case", BAD)
def test_of_all_that_is_wrong_with_a_body_only_the_first_is_looked_for(case: str) -> None:
    form, content = BAD[case]
    with pytest.raises(forms.BadForm) as found:
        form.read(content)
    assert isinstance(found.value.__context__, ValidationError) and found.value.__context__.error_count() <= 8


@pytest.mark.parametrize("form", [forms.ASK_MANY, forms.LABEL_MANY, forms.HISTORY])
def test_rows_are_counted_before_any_of_them_is_read(form: forms.Forms[Any]) -> None:
    (name,) = (one for one in form.form.model_fields if one != "id")
    made = service()
    with pytest.raises(Problem) as found:
        form.read(b'{"%s":[%s]}' % (name.encode(), b",".join([b"0"] * 1025)), made.check_batch)
    assert found.value.status == 413
    with pytest.raises(Problem) as found:
        form.read(b'{"%s":[]}' % name.encode(), made.check_batch)
    assert found.value.status == 422
    for model in made.models.values():
        model.owner.close()


@pytest.mark.parametrize("operation", ["ask-many", "label-many", "history"])
def test_while_a_large_body_is_read_others_are_served(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, real, desk = threading.Event(), forms.Forms.read, MemoryDesk()

    def slow(self: Any, content: bytes, *check: Any) -> Any:
        assert gate.wait(60)
        return real(self, content, *check)

    async def main() -> None:
        made = service(desk)
        head = operator() if operation == "history" else token()
        door = operator_app if operation == "history" else public_app
        monkeypatch.setattr(forms.Forms, "read", slow)
        large = b'{"rows":[' + b" " * app.LARGE + b"0]}"
        async with at(made) as client, at(made, door) as other:
            there = asyncio.create_task(other.post(f"/models/spam/{operation}", content=large, headers=head))
            await asyncio.sleep(0.05)
            assert (await client.get("/healthz")).status_code == 200 and not there.done()
            gate.set()
            assert (await there).status_code == 422

    go(main())
