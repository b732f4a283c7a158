"""Bodies that are read plainly are read as the forms' own descriptions say, and none is read that these refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide.service import forms
from confide.service.forms import ASK, ASK_MANY, LABEL, LABEL_MANY, BadForm, Forms

LEAF = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3)
IDS = LEAF | st.sampled_from(["", "q", "q" * 100, "q" * 101, "é" * 100])
ASKED = st.fixed_dictionaries({}, optional={"x": LEAF | st.lists(LEAF), "id": IDS, "label": LEAF})
TOLD = st.fixed_dictionaries({}, optional={"ticket": LEAF | st.just("t" * 1001), "label": LEAF, "x": LEAF})
ROWS = st.lists(ASKED | TOLD | LEAF, max_size=3)
MANY = st.fixed_dictionaries({}, optional={"questions": ROWS | LEAF, "labels": ROWS | LEAF})
PLAIN: list[Forms[Any]] = [ASK, ASK_MANY, LABEL, LABEL_MANY]


def shown(read: Any) -> list[str]:
    """What the desk is given of it; an id that the sender did not choose is another one each time."""
    rows = read.asked("ann") if hasattr(read, "asked") else read.taught("ann")
    own = [getattr(one, "id", "").startswith(forms._OWN) for one in rows]
    return [repr(tuple(one._replace(id="own") if mine else one)) for one, mine in zip(rows, own, strict=True)]


@pytest.mark.parametrize("form", PLAIN, ids=lambda form: form.name)
@given(body=ASKED | TOLD | MANY | LEAF | st.lists(ASKED))
def test_a_plain_reading_is_the_descriptions_own(form: Forms[Any], body: Any) -> None:
    """To the last bit, and for the same bodies."""
    sent = json.dumps(body).encode()
    said = list[Any]()
    for one in (form, Forms(form.form)):
        try:
            said.append(shown(one.read(sent)))
        except BadForm as error:
            said.append(str(error))
    assert said[0] == said[1]


def test_ordinary_bodies_are_read_plainly() -> None:
    """Otherwise the test above compares the descriptions with themselves."""
    ask = {"x": [1, 2.5], "id": "q"}
    for form, body in ((ASK, ask), (ASK_MANY, {"questions": [ask, {"x": {}}]}), (LABEL, {"ticket": "t", "label": 1})):
        assert not isinstance(form.read(json.dumps(body).encode()), form.form)
    assert not isinstance(LABEL_MANY.read(b'{"labels":[{"ticket":"t","label":true}]}'), forms.LabelMany)
