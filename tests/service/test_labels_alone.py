"""Labels alone, served: the true label is drawn for once and stored nowhere, and a killed desk comes back as it was."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import GaussianNB

from confide import POP, Plan, StateError
from confide.labels.default import Default
from confide.learners import Refit
from confide.ledger import snapshot
from confide.ledger.ledger import Ledger
from confide.planning.labels import NOT_PROTECTED
from confide.pop.randomizing import Randomizing
from confide.pop.state import check
from confide.service import history
from confide.service.base import Question, Reply, Taught
from confide.service.config import ModelConfig
from confide.service.desk import PopDesk
from confide.service.journal import NOBODY, TAUGHT, Columns, Row, Rows
from confide.service.logs import Log
from confide.service.models import open_desk as configured
from confide.service.operators import operator_app
from tests.label_pops import part
from tests.label_worlds import Forced
from tests.service.desks import operator, service
from tests.service.opened import again, ask, folder, killed, kind, learn, ticket
from tests.service.test_http import at, go, post

pytestmark = pytest.mark.claim("labels.md", "people.md")
__all__ = ["folder"]

LABELS = ["no", "yes"]


def make(learner: Any = None, due: tuple[int, int] | None = None, **more: Any) -> POP:
    promised = {name: more.pop(name) for name in ("units", "unit_labels") if name in more}
    plan = Plan.labels_alone(1.0, 2, due=due, **{"units": "people", "unit_labels": 50, **promised})
    given = {"labels": LABELS, "features": 2, "ticket_life": 10_000 if due is None else due[0], "seed": 1, **more}
    return POP(learner, plan, units=plan.units or "rounds", **given)


def opened(folder: Path, **settings: Any) -> PopDesk:
    return PopDesk.open(folder, lambda: make(**settings), name="spam", save_every=None, wall=lambda: 0.0)


def alone(desk: PopDesk) -> Randomizing:
    found = desk.pop.operator.randomizing
    assert found is not None
    return found


def knows(desk: PopDesk) -> dict[str, Any]:
    """What the model knows; of one that is pickled, whose bytes depend on more than that, what it answers."""
    model = alone(desk).model
    if not isinstance(model, Default):
        return {"answers": repr([model.answer(model.read([0.3 * i, 1.0])) for i in range(9)])}
    return {name: value.tobytes() for name, value in sorted(model.state().items())}


def noted(folder: Path) -> list[tuple[str, int, bytes]]:
    """The journal's notes."""
    return [(kind, width, body) for kind, _, width, body in Ledger(folder / "ledger.db").journal("pop")]


def outputs(folder: Path) -> list[int]:
    """What the journal says came out, in order."""
    rows = [row for kind, width, body in noted(folder) if kind == TAUGHT for row in Rows.of(width).read(body)]
    return [row.label for row in rows if row.epoch >= 0]


# ---------------------------------------------------------------------- two worlds, over the served path


def seen(desk: PopDesk, said: Any) -> dict[str, Any]:
    """Everything that anybody sees, stores or counts, as long as it is the same whenever nothing true is in it."""
    header, arrays = snapshot.read(desk.folder)
    private = {name: value for name, value in desk.private().items() if name not in ("ledger", "nbytes")}
    return {
        "what was said": said,
        "what everyone sees": {**desk.public()},
        "what the operator sees": private,
        "a person": [{**desk.person(who)} for who in ("ann", "bob")],
        "what the model knows": knows(desk),
        "the journal": noted(desk.folder),
        "the snapshot": (
            {name: value for name, value in header.items() if name not in ("life", "sequence")},
            {name: value.tobytes() for name, value in arrays.items() if not name.endswith("pickle")},
        ),
    }


def told(said: Reply) -> Any:
    """An answer without its ticket, whose name has coins of the ledger's."""
    assert said.answer is not None
    return said.answer._replace(ticket=""), said.round


def steps(desk: PopDesk, hidden: str | None) -> list[dict[str, Any]]:
    """Ask, bring, bring again, bring another, past a cap, in history; the label of ann's first question is hidden."""
    words = alone(desk).rng = Forced(alone(desk).part.response)  # type: ignore[assignment]
    found, tickets = [], list[str]()
    for i in range(6):
        said = ask(desk, "ann" if i % 2 else "bob", f"q{i}", [float(i), 1.0])
        tickets.append(ticket(said))
        found.append(seen(desk, told(said)))
    bring: list[tuple[int, str | None]] = [(1, hidden), (0, "yes"), (1, hidden), (1, "yes"), (3, "no"), (5, hidden)]
    for i, label in bring:
        if label is not None:
            refusal = learn(desk, "ann" if i % 2 else "bob", tickets[i], label)
            found.append(seen(desk, refusal))
    if alone(desk).part.deadline is None:
        records = [("ann", [1.0, 2.0], hidden), ("bob", [0.5, 2.0], "no")]
        for _ in range(2):
            found.append(seen(desk, desk.teach(records, "old")))
    for i in range(6, 12):
        said = ask(desk, "bob", f"q{i}", [float(i), 1.0])
        found.append(seen(desk, told(said)))
    desk.save()
    found.append(seen(desk, words.used))  # type: ignore[attr-defined]
    return found


def worlds(tmp_path: Path, hidden: tuple[str | None, str | None], **settings: Any) -> str:
    """What differs first between the two; "" where nothing does."""
    both = []
    for number, label in enumerate(hidden):
        with opened(tmp_path / f"{number}", **settings) as desk:
            both.append(steps(desk, label))
    for step, (one, other) in enumerate(zip(*both, strict=True)):
        for what in one:
            if one[what] != other[what]:
                return f"step {step}: {what}"
    return ""


CASES: dict[str, dict[str, Any]] = {
    "our own": {},
    "own model": {"learner": GaussianNB()},
    "rounds": {"units": "rounds", "unit_labels": 1},
    "a cap of two": {"unit_labels": 2},
    "a deadline": {"due": (4, 0)},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_two_worlds_that_differ_in_a_label_are_the_same_to_the_last_bit(case: str, tmp_path: Path) -> None:
    assert worlds(tmp_path, ("yes", "no"), **CASES[case]) == ""


def leaks(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    def counts(self: PopDesk, *given: Any) -> Any:
        row = Row(NOBODY, NOBODY, NOBODY, 1, 1, -1, -1, given[0].get((1, 2), 0), 0, -1, None)
        self._counts.labelled(Columns.of([row]), [0])
        return take(self, *given)

    take = PopDesk._take_labels
    if which == "not randomized":
        monkeypatch.setattr(Randomizing, "receive", lambda self, label, who: label)
    elif which == "a digest of labels":
        monkeypatch.setattr(history.Import, "__init__", _telling(history.Import.__init__))
    elif which == "counted before it is drawn":
        monkeypatch.setattr(PopDesk, "_take_labels", counts)


def _telling(init: Callable[..., None]) -> Callable[..., None]:
    return lambda self, *given, **more: init(self, *given, **{**more, "alone": False})


@pytest.mark.parametrize("which", ["not randomized", "a digest of labels", "counted before it is drawn"])
def test_a_desk_that_keeps_the_true_label_is_caught(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaks(monkeypatch, which)
    assert worlds(tmp_path, ("yes", "no")) != ""


def test_with_a_deadline_whether_a_label_came_shows_in_no_answer(folder: Path, tmp_path: Path) -> None:
    """What anybody is told, the model included, is the same whether the label came or was replaced."""
    both = []
    for number, label in enumerate(("no", None)):
        with opened(tmp_path / f"{number}", due=(4, 0)) as desk:
            alone(desk).rng = Forced(alone(desk).part.response, one_output=True)  # type: ignore[assignment]
            lines, first = [], ""
            for i in range(12):
                said = ask(desk, f"p{i}", f"q{i}", [float(i), 1.0])
                first = first or ticket(said)
                lines.append((told(said), knows(desk), alone(desk).outputs.tolist()))
                if i == 1 and label is not None:
                    assert learn(desk, "p0", first, label) is None
            both.append(lines)
    assert both[0] == both[1]


def test_at_a_deadline_somebody_elses_round_writes_the_same_whether_a_label_came_or_not(tmp_path: Path) -> None:
    """What was written only for a missing label would take its time in the round of who asks then."""
    both = []
    for number, label in enumerate(("yes", None)):
        with opened(tmp_path / f"{number}", due=(3, 0)) as desk:
            book, lines = desk.pop.operator.loop.account.book, []
            first = ticket(ask(desk, "ann", "q", [1.0, 1.0]))
            if label is not None:
                assert learn(desk, "ann", first, label) is None
            for i in range(5):
                assert book is not None
                notes, sequence = noted(desk.folder), book.sequence
                ask(desk, "bob", f"q{i}", [float(i), 1.0])
                added = noted(desk.folder)[len(notes) :]
                lines.append((book.sequence - sequence, [(kind, width, len(body)) for kind, width, body in added]))
            both.append((lines, alone(desk).learned, desk.private()["labels"]))
    assert both[0] == both[1]


def test_the_operators_error_counts_what_stands_for_a_label_until_it_comes(folder: Path) -> None:
    """And after a crash the same, whatever of it the counts' own note has."""
    desk = opened(folder, due=(6, 0), fallback="no")
    alone(desk).rng = Forced(alone(desk).part.response, one_output=True)  # type: ignore[assignment]
    alone(desk).propose = lambda question: (1, None)  # type: ignore[method-assign,assignment]
    held = [ticket(ask(desk, "ann", f"q{i}", [float(i), 0.0])) for i in range(4)]
    for one in held[:2]:
        learn(desk, "ann", one, "no")
    counted = [desk._counts.totals()]
    desk.save()
    learn(desk, "ann", held[2], "no")
    ask(desk, "ann", "q9", [0.0, 0.0])
    counted.append(desk._counts.totals())
    assert [(one["labels"], one["wrong"]) for one in counted] == [(4, 4), (5, 5)]
    other = again(desk)
    assert other._counts.totals() == counted[-1]
    other.close()


# ---------------------------------------------------------------------- the true label is in no file


def test_the_true_label_is_in_no_file(folder: Path) -> None:
    """Every word is forced to bring out the other label: then no file has any trace of what was brought."""

    class Other:
        secure = False

        def fresh_word(self) -> int:
            return 0  # "no" comes out, whatever came in

        def fresh_words(self, n: int) -> Any:
            return np.zeros(n, dtype=np.uint64)

    with opened(folder) as desk:
        alone(desk).rng = Other()  # type: ignore[assignment]
        for i in range(30):
            assert learn(desk, f"p{i}", ticket(ask(desk, f"p{i}", "q", [i * 0.1, 1.0])), "yes") is None
        desk.teach([(f"p{i}", [i * 0.3, 2.0], "yes") for i in range(5)], "old")
        desk.save()
        assert outputs(folder) == [0] * 35
        assert alone(desk).outputs.tolist() == [35, 0]
        _, arrays = snapshot.read(folder)
        assert arrays["part/labels/outputs"].tolist() == [35, 0] and not arrays["part/labels/learner/kept/outs"].any()
    for path in folder.iterdir():
        body = path.read_bytes()
        assert body.count(b"yes") == (path.name == "snapshot.npz") * body.count(b'["no", "yes"]'), path.name


# ---------------------------------------------------------------------- crashes and restarts


@pytest.mark.parametrize("case", ["our own", "own model", "a deadline"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_killed_after_the_journal_it_comes_back_as_it_was(case: str, folder: Path) -> None:
    settings = CASES[case]
    desk = opened(folder, **settings)
    tickets = [(f"p{i % 7}", ticket(ask(desk, f"p{i % 7}", f"q{i}", [i * 0.1, -1.0]))) for i in range(20)]
    for i, (who, held) in enumerate(tickets[:9]):
        learn(desk, who, held, LABELS[i % 2])
    desk.save()
    for i, (who, held) in enumerate(tickets[9:]):
        learn(desk, who, held, LABELS[i % 2])
    more: dict[str, Any] = {"learner": settings.get("learner"), "trusted": True}
    came, drawn = outputs(folder), alone(desk).outputs.tolist()
    before = knows(desk)
    other = again(desk, **more)
    assert knows(other) == before and alone(other).outputs.tolist() == drawn
    assert outputs(other.folder) == came, "nothing was drawn again"
    who, used = tickets[-1]
    assert learn(other, who, used, "yes") is None and learn(other, who, used, "no") is None
    assert outputs(other.folder) == came, "a label that is brought again is acknowledged, and never drawn again"
    retried = ask(other, "p5", "q19", [19 * 0.1, -1.0])
    assert retried.again and ticket(retried) == used
    ask(other, "p1", "new", [1.0, 1.0])
    other.save()
    before = knows(other)
    third = again(other, **more)
    assert knows(third) == before, "what a snapshot has is not taught again"
    third.close()


class Slow(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Answers "no" after its fit to 64 or 96 rows, "yes" after that to 128. A fit waits until it is let go."""

    go, stuck = threading.Event(), threading.Event()

    def fit(self, rows: Any, labels: Any) -> Slow:
        if not self.go.wait(30):
            self.stuck.set()
        self.classes_, self.said_ = np.array(LABELS), LABELS[len(rows) // 128]
        return self

    def predict(self, rows: Any) -> Any:
        return np.full(len(rows), self.said_)


def after(desk: PopDesk, brought: int) -> tuple[int, Any]:
    """How many labels came once so many more were brought, and what is answered then."""
    name = f"{alone(desk).learned}"
    asked = desk.ask([Question("ann", f"{name} {i}", [0.0, 0.0]) for i in range(brought)])
    desk.learn([Taught("ann", ticket(one), "yes") for one in asked])
    said = ask(desk, "ann", name, [0.0, 0.0]).answer
    return alone(desk).learned, None if said is None else said.label


def test_a_fit_runs_beside_the_answers_and_its_model_answers_from_a_public_label_on(folder: Path) -> None:
    """Fitted after 64, 96 and 128 labels, it answers from an eighth more on: however long a fit takes, after a kill."""
    Slow.go.clear()
    desk = opened(folder, learner=Refit(Slow()), units="rounds", unit_labels=1, seed=3)
    assert [after(desk, n) for n in (64, 7)] == [(64, "yes"), (71, "yes")], "nobody waits for the first fit"
    Slow.go.set()
    assert [after(desk, n) for n in (1, 36)] == [(72, "no"), (108, "no")]
    Slow.go.clear()
    assert after(desk, 24) == (132, "no"), "nor for the last"
    Slow.go.set()
    other = again(desk, learner=Refit(Slow()), trusted=True)
    assert after(other, 11) == (143, "no")
    other.save()
    other = again(other, learner=Refit(Slow()), trusted=True)
    assert after(other, 1) == (144, "yes") and not Slow.stuck.is_set(), "nobody waited for a fit that was not let go"
    other.close()


def test_a_label_that_was_not_written_is_brought_again_and_counts_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the draw and before the journal: nobody saw what came out, so the next draw is the first."""
    desk = opened(folder, unit_labels=1)
    held = ticket(ask(desk, "ann", "q", [1.0, 1.0]))
    monkeypatch.setattr(desk._keeper._loop.account, "enter", lambda *_, **__: (_ for _ in ()).throw(SystemExit))
    with pytest.raises(SystemExit):
        learn(desk, "ann", held, "yes")
    other = again(desk)
    assert outputs(other.folder) == [] and alone(other).learned == 0
    assert learn(other, "ann", held, "yes") is None
    assert len(outputs(other.folder)) == 1 and alone(other).learned == 1
    other.close()


# ---------------------------------------------------------------------- people, deadlines, forgetting


def test_past_a_cap_nothing_is_drawn_and_the_bringer_is_told(folder: Path) -> None:
    with opened(folder, unit_labels=2) as desk:
        held = [ticket(ask(desk, "ann", f"q{i}", [float(i), 0.0])) for i in range(4)]
        said = desk.learn([Taught("ann", one, "yes") for one in held[:3]])
        assert [kind(one) for one in said] == [None, None, "label"]
        assert said[2] is not None and "2 labels are taken in a life" in said[2].message
        assert kind(learn(desk, "ann", held[3], "no")) == "label" and learn(desk, "ann", held[0], "no") is None
        assert len(outputs(folder)) == 2 and desk.private()["labels_over"] == 2 and desk.private()["taught"] == 2
        assert desk.person("ann")["guide_labels"] == 2 == desk.person("ann")["most_guide_labels"]
        assert learn(desk, "bob", ticket(ask(desk, "bob", "q", [0.0, 0.0])), "yes") is None


def test_at_its_deadline_a_missing_label_is_the_declared_one_and_a_late_one_is_refused(folder: Path) -> None:
    with opened(folder, due=(3, 0), unit_labels=1) as desk:
        held = [ticket(ask(desk, who, f"q{i}", [float(i), 0.0])) for i, who in enumerate(("ann", "bob", "ann"))]
        assert learn(desk, "bob", held[1], "yes") is None
        assert len(outputs(folder)) == 1 and alone(desk).learned == 0, "it waits for its deadline"
        ask(desk, "eve", "q3", [0.0, 0.0])
        assert len(outputs(folder)) == 1 == alone(desk).learned
        assert kind(learn(desk, "ann", held[0], "yes")) == "ticket", "it came too late"
        assert desk.private()["labels_over"] == 1, "the second of ann's was past her cap"
        assert desk.public()["ticket_life"] == 3 and desk.public()["ticket_hours"] == 0
        with pytest.raises(ValueError, match="has no deadline"):
            desk.teach([("ann", [0.0, 0.0], "yes")])


def test_with_a_deadline_a_persons_first_questions_take_their_cap_whatever_comes_first(folder: Path) -> None:
    """Were it the first labels to come, which of two questions is taught would say that a label came."""
    taught = []
    for number, early in enumerate((False, True)):
        with opened(folder.with_name(f"{number}"), due=(3, 0), unit_labels=1) as desk:
            alone(desk).rng = Forced(alone(desk).part.response)  # type: ignore[assignment]
            held = [ticket(ask(desk, "ann", f"q{i}", [float(i), 0.0])) for i in range(2)]
            if early:
                assert kind(learn(desk, "ann", held[1], "yes")) == "label"
            for i in range(2, 8):
                ask(desk, "eve", f"q{i}", [0.0, 0.0])
            taught.append((knows(desk), outputs(desk.folder)))
    assert taught[0] == taught[1]


def test_a_batch_longer_than_the_deadline_is_filled_too(folder: Path) -> None:
    with opened(folder, due=(2, 0), units="rounds", unit_labels=1) as desk:
        desk.ask([Question("ann", f"q{i}", [float(i), 0.0]) for i in range(7)])
        assert alone(desk).learned == 5
        ask(desk, "ann", "q7", [0.0, 0.0])
        assert alone(desk).learned == 6


def test_what_was_randomized_stays_when_somebody_is_forgotten(folder: Path) -> None:
    desk = opened(folder)
    held = [ticket(ask(desk, "ann", f"q{i}", [float(i), 0.0])) for i in range(3)]
    assert [learn(desk, "ann", one, "yes") for one in held[:2]] == [None, None]
    before = knows(desk)
    assert desk.forget("ann") and kind(learn(desk, "ann", held[2], "yes")) == "ticket"
    assert knows(desk) == before and outputs(folder) == []
    other = again(desk)
    assert knows(other) == before and alone(other).learned == 2
    assert other.person("ann")["guide_labels"] == 2, "what they used stays used"
    other.close()


def test_with_a_deadline_nothing_of_the_forgotten_is_taught_whether_or_not_their_label_came(folder: Path) -> None:
    taught = []
    for number, comes in enumerate((False, True)):
        desk = opened(folder.with_name(f"{number}"), due=(4, 0))
        alone(desk).rng = Forced(alone(desk).part.response)  # type: ignore[assignment]
        held = ticket(ask(desk, "ann", "q", [1.0, 0.0]))
        if comes:
            assert learn(desk, "ann", held, "yes") is None
        desk.forget("ann")
        for i in range(6):
            ask(desk, "eve", f"q{i}", [0.0, float(i)])
        other = again(desk)
        taught.append((alone(other).outputs.sum(), alone(desk).outputs.sum()))
        other.close()
    assert taught == [(2, 2)] * 2


def test_what_waits_for_its_deadline_in_a_library_waits_on_at_a_desk(folder: Path) -> None:
    """Each is taught once, at its round, the forgotten person's not at all: at the desk, and after it was killed."""
    pop = make(due=(4, 0), seed=None)
    tickets = [pop.predict([float(i), 0.0], unit=f"p{i}").ticket for i in range(4)]
    pop.learn(tickets[2], "yes")
    pop.save(folder)
    held = [one.out for one in part(pop)._held.values()]
    pop.close()
    desk = PopDesk.open(folder, make, name="spam", save_every=None, wall=lambda: 0.0)
    assert kind(learn(desk, "p1", tickets[1], "yes")) == "ticket"
    desk.forget("p3")
    for i in range(2):
        ask(desk, "eve", f"q{i}", [9.0, 9.0])
    assert alone(desk).learned == 2, "the first two were due"
    desk = again(desk)
    assert alone(desk).learned == 2
    desk.save()
    ask(desk, "eve", "q2", [9.0, 9.0])
    ask(desk, "eve", "q3", [9.0, 9.0])
    desk = again(desk)
    assert alone(desk).model.state()["kept/outs"].tolist() == held[:3]
    desk.close()


# ---------------------------------------------------------------------- what is said, and what is never mixed up


def test_every_surface_says_what_is_protected(folder: Path) -> None:
    with opened(folder) as desk:
        shown = desk.public()
        assert shown["protect"] == "labels" and NOT_PROTECTED in shown["guarantee"]["text"]
        assert NOT_PROTECTED in shown["plan"] and NOT_PROTECTED in shown["guarantee"]["sentence"]
        assert shown["guarantee"]["delta"] == 0 and shown["guarantee"]["epsilon"] <= 1
        said = ask(desk, "ann", "q", [1.0, 0.0]).answer
        shares: dict[Any, float] = said.probabilities  # type: ignore[union-attr]
        assert set(shares) == set(LABELS) and sum(shares.values()) == pytest.approx(1)
        assert ask(desk, "ann", "q", [1.0, 0.0]).answer == said
    assert check(folder).guarantee.epsilon <= 1


def test_over_http_the_answer_has_probabilities_and_no_refusal_quotes_a_label(folder: Path) -> None:
    desk, said = opened(folder, unit_labels=1), io.StringIO()
    desk.again = lambda: desk  # type: ignore[attr-defined]
    made = service(desk, log=Log(said))  # type: ignore[arg-type]

    async def main() -> None:
        async with at(made) as client, at(made, operator_app) as private:
            asks = {"x": [1.0, 2.0], "id": "q1"}
            told = (await post(client, "ask", asks)).json()
            assert sum(told["probabilities"].values()) == pytest.approx(1) and set(told["probabilities"]) == set(LABELS)
            assert (await post(client, "ask", asks)).json()["probabilities"] == told["probabilities"]
            for label in ("yes", "no", "yes"):
                lesson = {"ticket": told["ticket"], "label": label}
                assert (await post(client, "label", lesson)).json() == {"taken": True}
            second = (await post(client, "ask", {"x": [1.0, 2.0], "id": "q2"})).json()
            for label in ("yes", "unheard-of"):
                refused = await post(client, "label", {"ticket": second["ticket"], "label": label})
                assert refused.status_code == 422 and label not in refused.text
            shown = (await client.get("/models/spam")).json()
            assert shown["protect"] == "labels" and NOT_PROTECTED in shown["guarantee"]["text"]
            plan = Plan.from_json((await client.get("/models/spam/plan")).text)
            assert plan.promise.protect == "labels" and plan.guarantee.epsilon <= 1
            seen = (await private.get("/models/spam", headers=operator())).json()["private"]
            assert seen["labels_over"] == 1 and seen["taught"] == 1
            audit = await private.post("/models/spam/audit", headers=operator(), json={"games": 100})
            assert audit.status_code == 422 and "labels alone" in audit.json()["error"]["message"]

    go(main())
    assert "yes" not in said.getvalue() and "unheard" not in said.getvalue()
    for model in made.models.values():
        model.owner.close()


def test_the_operators_error_is_estimated_from_what_came_out(folder: Path) -> None:
    """Always "no" is answered before anything is learned; 40 of 100 labels are "yes": 4 standard errors are 0.43."""
    with opened(folder, units="rounds", unit_labels=1, fallback="no", seed=3) as desk:
        tickets = [ticket(one) for one in desk.ask([Question("ann", f"q{i}", [0.0, 0.0]) for i in range(100)])]
        desk.learn([Taught("ann", one, "yes" if i % 5 < 2 else "no") for i, one in enumerate(tickets)])
        error = desk.private()["error"]
        assert error is not None and abs(error - 0.4) < 0.43


def test_one_promise_is_never_opened_as_the_other(folder: Path) -> None:
    given: dict[str, Any] = {"folder": folder, "labels": LABELS, "columns": 2, "units": "people", "epsilon": 1.0}
    labels = ModelConfig(**given, protect="labels", unit_labels=3)
    configured("m", labels).close()
    configured("m", labels).close()
    with pytest.raises(ValueError, match=r"models\.m\.protect is not what the model"):
        configured("m", ModelConfig(**given, unit_labels=3))
    with pytest.raises(ValueError, match=r"models\.m\.unit_labels is not"):
        configured("m", ModelConfig(**given, protect="labels", unit_labels=4))
    with pytest.raises(StateError, match="another model"):
        configured("m", ModelConfig(**given, protect="labels", unit_labels=3, learner="sklearn.naive_bayes:GaussianNB"))
    rows = {**given, "folder": folder.with_name("rows"), "epsilon": 8.0}
    configured("m", ModelConfig(**rows)).close()
    with pytest.raises(ValueError, match=r"models\.m\.protect is not what the model"):
        configured("m", ModelConfig(**rows, protect="labels"))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"protect": "labels", "delta": 1e-6}, "delta has no meaning where labels alone are protected"),
        ({"protect": "labels", "monitor": 0.1}, "monitor has no meaning"),
        ({"deadline": 10, "missing": "no"}, "deadline has no meaning where what was asked is protected"),
        ({"protect": "labels", "deadline": 10}, "give both"),
        ({"protect": "labels", "deadline": 10, "missing": "no", "ticket_life": 10}, "leave ticket_life"),
    ],
    ids=["delta", "monitor", "rows", "half a deadline", "a ticket's life"],
)
def test_entries_that_would_be_ignored_are_refused(entries: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ModelConfig(folder=Path("x"), labels=LABELS, columns=2, epsilon=1.0, **entries)


def test_a_missing_label_that_is_none_of_the_labels_is_refused(folder: Path) -> None:
    given: dict[str, Any] = {"folder": folder, "labels": LABELS, "columns": 2, "epsilon": 1.0, "protect": "labels"}
    with pytest.raises(ValueError, match="missing is none of the labels"):
        configured("m", ModelConfig(**given, deadline=5, missing="maybe"))
    with pytest.raises(ValueError, match="say epsilon"):
        configured("m", ModelConfig(**{**given, "epsilon": None}))
    configured("m", ModelConfig(**given, deadline=5, missing="no")).close()
    with pytest.raises(ValueError, match=r"models\.m\.deadline is not"):
        configured("m", ModelConfig(**given, deadline=6, missing="no"))


def test_killed_before_the_first_snapshot_the_journal_alone_makes_the_model(folder: Path) -> None:
    desk = opened(folder, units="rounds", unit_labels=1)
    tickets = [ticket(one) for one in desk.ask([Question("ann", f"q{i}", [i * 0.1, 0.0]) for i in range(40)])]
    desk.learn([Taught("ann", one, LABELS[i % 2]) for i, one in enumerate(tickets)])
    came, before = outputs(folder), knows(desk)
    other = PopDesk.open(killed(desk), lambda: make())
    assert knows(other) == before
    plain = make(units="rounds", unit_labels=1).operator.randomizing
    assert plain is not None
    for i, out in enumerate(came):
        plain.model.teach(plain.model.read([i * 0.1, 0.0]), out)
    assert {name: value.tobytes() for name, value in sorted(plain.model.state().items())} == before
    other.close()


def test_a_pickle_is_loaded_only_where_that_is_trusted(folder: Path) -> None:
    desk = opened(folder, learner=GaussianNB())
    with pytest.raises(StateError, match="pickle"):
        again(desk, learner=GaussianNB())


def test_draws_are_one_word_for_each_label(folder: Path) -> None:
    """The law itself: what comes out is the truth as often as the response says; 6 standard errors, 2e-9."""
    with opened(folder, units="rounds", unit_labels=1) as desk:
        n = 2000
        tickets = [ticket(one) for i in range(0, n, 500) for one in
                   desk.ask([Question("ann", f"{i} {j}", [0.0, 0.0]) for j in range(500)])]  # fmt: skip
        desk.learn([Taught("ann", one, "yes") for one in tickets])
        truth = alone(desk).part.response.truth
        assert abs(np.mean(outputs(folder)) - truth) < 6 * (truth * (1 - truth) / n) ** 0.5
