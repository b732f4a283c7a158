"""Plans: a promise and priced parts. From (ε, δ, rounds, …) to every number of a run, and back to a proof.

Claims and proofs: docs/proofs/halting.md (tight and certified plans), docs/proofs/certificate.md (mistakes),
docs/proofs/paper-plan.md (the paper's own constants).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from confide._checks import Numbers
from confide.extras import need
from confide.planning import certified as certified_plans
from confide.planning import files, shares, text, tight, verify
from confide.planning import paper as paper_plans
from confide.planning.arguments import BETA, HORIZON, MISTAKE_BETA, Unused, check, mistake_bound
from confide.planning.copies import Copies, copies_of
from confide.planning.files import Kind
from confide.planning.guarantee import Guarantee
from confide.planning.guided import GuidePlan
from confide.planning.labels import label_guarantee, labels_alone
from confide.planning.mistakes import Certificate
from confide.planning.parts import Part, Price, price_of
from confide.planning.periods import together
from confide.planning.promise import Promise, Units
from confide.planning.tight import DISSENT
from confide.privacy.exact import MOST_MU
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean
from confide.privacy.sparse import CounterBudget
from confide.privacy.weigh import Weights

if TYPE_CHECKING:
    from confide.planning.pictures import Picture

__all__ = ["BETA", "MISTAKE_BETA", "Guarantee", "Kind", "Plan", "Tables"]

P = TypeVar("P", bound=Part)


class Tables(NamedTuple):
    """The two tables of a plan with copies."""

    gate: Gate
    halting: Halting | CounterBudget


def _of_copies(name: str, without: int = 0) -> cached_property[int]:
    """A property that reads this number of the copies; `without` is its value in a plan that has none."""
    return cached_property(lambda plan: without if plan.voters is None else getattr(plan.voters, name))


@dataclass(frozen=True)
class Plan(Numbers):
    """Every number of a run, and the guarantee that they certify: a promise, and the parts that keep it.

    Make one with `Plan.tight` (a stream and a budget), `Plan.certified` (a mistake bound as well) or `Plan.paper` (the
    paper's own constants). `print(plan)` says what is promised, to whom, and what it costs.

    Examples
    --------
    >>> import confide
    >>> plan = confide.Plan.tight(epsilon=1.0, delta=1e-6, rounds=300_000)
    >>> plan.guarantee.epsilon <= 1.0, plan.copies
    (True, 0)
    >>> print(plan.guarantee)
    (1, 1e-06)-challenge-DP
    >>> [part.kind for part in plan.parts]
    ['linear']
    """

    promise: Promise
    parts: tuple[Part, ...]
    kind: Kind = "parts"
    guarantee: Guarantee = None  # type: ignore[assignment]
    """What the parts keep of the promise; where it is not given, it is computed."""
    certificate: Certificate | None = None
    mistakes: int | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "parts", tuple(self.parts))
        if self.promise.labels is None:
            object.__setattr__(self, "promise", replace(self.promise, labels=2))
        said = self.guarantee
        if said is None:
            said = Guarantee(min(self.promise.epsilon, self.price().epsilon(self.promise.delta)), self.promise.delta)
        a_period = "" if self.promise.per is None else " in each period"
        caps = tuple(f"{part.cap.long}{a_period}" for part in self.parts if part.cap is not None)
        learned = None if self.guide is None else self.guide.unit_labels
        if self.promise.protect == "labels":
            learned = self.promise.unit_labels if self.units == "people" else None
            said = label_guarantee(self.promise, self.parts, said.epsilon)
        said = replace(said, units=self.units, unit_unsure=self.unit_unsure, unit_labels=learned, caps=caps)
        if (life := self.life_price()) is not None:
            whole = life.epsilon(self.promise.delta) if said.life is None else said.life
            said = replace(said, per=self.promise.per, periods=self.promise.periods, life=whole)
        object.__setattr__(self, "guarantee", said)

    def part(self, kind: type[P]) -> P | None:
        """The part of this kind; None where the plan has none."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def but(self, **numbers: Any) -> Plan:
        """The same with other numbers, whichever part has them; whether they still belong together, `verify` says.

        Another guarantee is another promise too. `guide=None` leaves the guide out; for people one that was made for
        rounds is made anew.

        Examples
        --------
        >>> plan = Plan.tight(1.0, 1e-6, 300_000)
        >>> plan.but(units="people").units
        'people'
        """
        own = {name: numbers.pop(name) for name in [*numbers] if name in {each.name for each in fields(self)}}
        promise, parts = own.pop("promise", self.promise), own.pop("parts", self.parts)
        if "guide" in numbers:
            guide = numbers.pop("guide")
            parts = (*(part for part in parts if not isinstance(part, GuidePlan)), *([] if guide is None else [guide]))
        if (said := own.get("guarantee")) is not None:
            promise = replace(promise, epsilon=said.epsilon, delta=said.delta)
        stated = {name: numbers[name] for name in numbers if hasattr(promise, name)}
        voted = {name: numbers[name] for name in numbers if name == "labels" or name not in stated}
        promise = replace(promise, **stated)
        if set(voted) - {"labels"} and not any(isinstance(part, Copies) for part in parts):
            raise ValueError(f"this plan has no copies, and so no {', no '.join(voted)}: leave them out")
        if promise.units == "people":
            alone = (promise.epsilon, promise.delta) if len(parts) == 1 else ()
            parts = tuple(part.together(*alone) if isinstance(part, GuidePlan) else part for part in parts)
        if voted:
            parts = tuple(replace(part, **voted) if isinstance(part, Copies) else part for part in parts)
        own.setdefault("guarantee", replace(self.guarantee, per=None, periods=None, life=None))  # computed anew
        return replace(self, promise=promise, parts=parts, **own)

    def price(self) -> Price:
        """What all parts cost together, from their integers."""
        return price_of(self.parts)

    def life_price(self) -> Price | None:
        """What all periods of one person cost together; None where a promise has none, and the price is for life."""
        if (counted := self.promise.counted) is None:
            return None
        if self.guide is None or self.parts != (self.guide,):
            raise ValueError(
                "per and periods are proved for a guide alone: plan without copies (guide=1.0), or leave both out"
            )
        price = together(self.guide, counted)
        if price.mu2 is not None and price.mu2 > MOST_MU**2:
            raise ValueError(f"periods={counted.most} together promise nothing: take fewer, or a smaller epsilon")
        return price

    def __deepcopy__(self, _: Any) -> Plan:
        """The plan itself. It never changes, so clones of a model share it, and it is certified once."""
        return self

    # ------------------------------------------------------------------ the numbers by their names

    @property
    def endless(self) -> bool:
        """Whether it has no last round."""
        return self.promise.rounds is None

    @cached_property
    def rounds(self) -> int:
        """T: all rounds, the silent ones included; ValueError for a plan without an end."""
        if self.promise.rounds is None:
            raise ValueError("this plan has no last round: ask plan.endless first, or plan for a number of rounds")
        return self.promise.rounds

    @cached_property
    def horizon(self) -> int:
        """T; of a plan without an end a number of rounds that no run reaches."""
        return HORIZON if self.promise.rounds is None else self.promise.rounds

    @property
    def length(self) -> str:
        """How many rounds, in words."""
        return "no last round" if self.promise.rounds is None else f"{self.promise.rounds:,} rounds"

    @cached_property
    def labels(self) -> int:
        """How many labels there are."""
        return self.promise.labels or 2

    @property
    def units(self) -> Units | None:
        """For whom it was made, where that was said."""
        return self.promise.units

    @cached_property
    def voters(self) -> Copies | None:
        """The copies, as a part; None where there are none."""
        return self.part(Copies)

    @cached_property
    def guide(self) -> GuidePlan | None:
        """The guide, as a part; None where there is none."""
        return self.part(GuidePlan)

    copies = _of_copies("copies")
    """k; 0 where nothing votes, and so nothing halts."""
    polls = _of_copies("polls")
    """m: the copies asked in a round."""
    unsure = _of_copies("unsure")
    """r: the unsure answers the run is planned to have."""
    silent = _of_copies("silent")
    """Rounds at the start in which copies learn and do not answer."""
    unit_unsure = _of_copies("unit_unsure", without=1)
    """G: unsure answers that one unit may receive."""
    relay = _of_copies("relay")
    """Rounds of a leg, where the copies are a relay; else 0."""
    eligible = _of_copies("eligible")
    """K: the copies that may vote in a round."""

    @property
    def beta(self) -> float:
        """The probability of halting although fewer than `unsure` answers were unsure."""
        return BETA if self.voters is None else self.voters.beta

    @cached_property
    def gate(self) -> Gate | None:
        """None, as are the halting table and the lean, where there are no copies."""
        return None if self.voters is None else self.voters.gate

    @cached_property
    def halting(self) -> Halting | CounterBudget | None:
        """What ends the copies."""
        return None if self.voters is None else self.voters.halting

    @cached_property
    def lean(self) -> Lean | Weights | None:
        """What is answered when unsure; None for the guide's answer or the fallback's."""
        return None if self.voters is None else self.voters.lean

    @cached_property
    def order(self) -> int | None:
        """The Rényi order at which all parts are accounted for; None where they are all Gaussian: that is exact."""
        return self.price().best_order(self.promise.delta) if self.voters is None else self.voters.order

    @cached_property
    def public(self) -> tuple[Part, ...]:
        """The parts that work on what was released alone: all but the copies."""
        return tuple(part for part in self.parts if not isinstance(part, Copies))

    @property
    def rest(self) -> str:
        """Who answers where copies do not, in words: the first part that is public, else the fallback."""
        return next((part.answers for part in self.parts if part.answers), "the fallback")

    @property
    def waits(self) -> int:
        """Rounds before that part answers; all of them where there is none."""
        return next((part.waits for part in self.parts if part.answers), self.horizon)

    @property
    def live(self) -> int:
        """Rounds that are answered by the copies, of a relay in a leg: all but the silent ones."""
        return (self.relay or self.horizon) - self.silent

    @property
    def poll_fraction(self) -> Fraction:
        """q = polls / eligible copies."""
        return Fraction(self.polls, max(1, self.eligible))

    @property
    def tables(self) -> Tables:
        """Gate and halting table; ValueError for a plan without copies."""
        if self.gate is None or self.halting is None:
            raise ValueError("this plan has no copies, and so no tables: its guide answers alone")
        return Tables(self.gate, self.halting)

    @property
    def renyi_order(self) -> int:
        """The order at which the plan is accounted for; ValueError where that is exact."""
        if self.order is None:
            raise ValueError("this plan has no copies, and so no Rényi order: its guide is accounted for exactly")
        return self.order

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to think twice about before running this plan: one sentence each; `print(plan)` shows them."""
        return text.warnings(self)

    @classmethod
    def tight(
        cls,
        epsilon: float,
        delta: float,
        rounds: int | None = None,
        *,
        copies: int | None = None,
        unsure: int | None = None,
        polls: int | None = None,
        silent: int | None = None,
        unit_unsure: int | None = None,
        labels: int = 2,
        beta: float = BETA,
        dissent: float = DISSENT,
        guide: shares.Guide = "auto",
        lean: Literal["auto", "fill", "additive"] | None = "auto",
        units: Literal["rounds", "people"] | None = None,
        unit_labels: int | None = None,
        history: int = 0,
        relay: bool = False,
    ) -> Plan:
        """The best numbers for a stream: what you give is kept, the rest is chosen; `explain()` says what and why.

        Proof pages: docs/proofs/halting.md (copies), guide.md (the guide, and both together), exact.md (a guide alone),
        relay.md (copies without an end).

        Parameters
        ----------
        epsilon, delta
            The promise to each unit.
        rounds
            T: all predict() calls, the silent ones included; past it nothing is learned any more. Without it the plan
            has no end, and no copies: they need one. With `relay` the rounds of one leg.
        copies
            k; by default the fewest that leave room for `dissent`.
        unsure
            r: the unsure answers the run is planned to have; by default √rounds.
        polls
            m: copies asked in a round; by default 129, or all when there are not many more.
        silent
            Rounds at the start in which copies learn and do not answer; by default 40 % of the rounds.
        unit_unsure
            G: unsure answers that one unit may receive; by default 1, and then the guide answers that unit.
        labels
            How many labels there are; any number from 2.
        beta
            Probability of halting although fewer than `unsure` answers were unsure.
        dissent
            The share of a poll that may disagree and still be answered; only used to choose `copies`.
        guide
            "auto": a guide, with the part of the budget that the notes explain, alone where copies would not pay.
            None: copies only. A number: its part of the budget, 1.0 for a guide alone.
        lean
            What is answered when unsure: None for the guide's answer, or the fallback's; or drawn from the votes and
            the guide's score, within the same budget, by "fill" tables (two labels) or an "additive" split. "auto": so,
            where the copies beside a guide are chosen here and not given.
        units
            For whom the plan is: "rounds" or "people"; None leaves it to the POP.
        unit_labels
            c: labels of one unit that the guide learns from; by default 1. More of them cost their square.
        history
            Labelled rows that will be taught, by `teach_many`, before the first round.
        relay
            Copies without an end: one half of `copies` votes while the other learns. After `rounds`, or when the unsure
            answers are used up, they change places, and who has voted begins anew. For rounds, not for people.
        """
        if relay and (rounds is None or (units or "rounds") != "rounds" or (copies or 0) % 2):
            raise ValueError(tight.RELAY)
        most, learned = 1 if unit_unsure is None else unit_unsure, 1 if unit_labels is None else unit_labels
        tight.check_words(units, most, learned, lean, labels)
        last = HORIZON if rounds is None else rounds
        check(epsilon, delta, last, beta=beta, labels=labels, silent=silent, unit_unsure=most, copies=copies,
              unsure=unsure, polls=polls)  # fmt: skip
        voters = tight.voters(copies, polls, most, relay)
        asked = tight.TightRequest(
            epsilon, delta, last, voters, unsure, polls, silent, most, labels, beta, dissent,
            lean=None if lean == "auto" else lean, relay=relay,
        )  # fmt: skip
        wish = shares.Wish(guide, learned, history, lean == "auto", units != "people")
        shared = shares.endless(asked, wish) if rounds is None else shares.best(asked, wish)
        if relay:
            rounds, units = None, "rounds"
        promise = Promise(epsilon, delta, rounds, labels, units, unit_labels=learned)
        parts = shared.parts(labels, beta, last if relay else 0)
        return cls(promise, parts, "tight", shared.got(delta), notes=shared.notes)  # type: ignore[arg-type]

    @classmethod
    def labels_alone(
        cls,
        epsilon: float,
        labels: int = 2,
        *,
        rounds: int | None = None,
        units: Units = "rounds",
        unit_labels: int = 1,
        due: tuple[int, int] | None = None,
    ) -> Plan:
        """Another promise: labels are protected; rows, and whether and when a label came, are not.

        Proof page: docs/proofs/labels.md.

        Parameters
        ----------
        epsilon
            For all labels of one unit together; δ is 0.
        rounds
            After which it ends, where it does: nothing else depends on it.
        unit_labels
            Labels of one person that are ever taken, each at epsilon/unit_labels.
        due
            Public rounds after which a label is due, and the number of the label that one is taken to be which has not
            come. Without it labels that come for one outcome only are not protected.

        Examples
        --------
        >>> print(Plan.labels_alone(1.0).guarantee)
        1-DP for labels alone: labels are protected; rows, and whether and when a label came, are not
        """
        promise = Promise(epsilon, 0.0, rounds, labels, units, "labels", unit_labels)
        return cls(promise, (labels_alone(promise, due),))

    @classmethod
    def certified(
        cls,
        epsilon: float,
        delta: float,
        rounds: int,
        mistakes: int,
        *,
        beta: float = MISTAKE_BETA,
        copies: int | None = None,
        polls: int | None = None,
        labels: int = 2,
        fallback_error: float | None = None,
        lean: Literal["fill", "additive"] | None = None,
    ) -> Plan:
        """The plan with the smallest certified expected number of mistakes for a learner that errs at most d times.

        Proof pages: docs/proofs/halting.md (privacy), docs/proofs/certificate.md (mistakes). Privacy holds whether or
        not the promise of d mistakes does; a broken promise can only end the run early.

        Parameters
        ----------
        mistakes
            d: each copy's own mistake bound.
        beta
            The certificate's failure probability.
        copies, polls
            k and m; by default k is optimised and every copy is asked.
        fallback_error
            Error probability of the answer to an unsure round: by default a coin's, 1 − 1/labels. The certificate
            holds for fallbacks that err no more often; 1.0 covers a constant label, or anything.
        lean
            As for `tight`. A lean follows a wrong majority too, so that by default there is none, and the certificate
            of a plan with one is a little worse, though it errs less where the majority is right.
        """
        check(epsilon, delta, rounds, beta=beta, labels=labels, copies=copies, polls=polls)
        mistakes = mistake_bound(mistakes)
        error = 1 - 1 / labels if fallback_error is None else float(fallback_error)
        asked = certified_plans.Search(epsilon, delta, rounds, mistakes, beta, polls, error, labels, lean)
        found = certified_plans.best(asked, copies)
        promise, parts = Promise(epsilon, delta, rounds, labels), (copies_of(found, labels, beta),)
        kept = Guarantee(found.got.epsilon, delta)
        return cls(promise, parts, "certified", kept, found.certificate, mistakes, found.notes)

    @classmethod
    def paper(
        cls,
        epsilon: float,
        delta: float,
        rounds: int,
        mistakes: int = 1,
        *,
        beta: float = MISTAKE_BETA,
        copies: int | None = None,
        unsure: int | None = None,
        labels: int = 2,
        counter_share: float | None = None,
    ) -> Plan:
        """The paper's POP with its own mechanisms and explicit constants. Proof page: docs/proofs/paper-plan.md.

        Its units are rounds: for people the counter would have to hide twice as many changes (see there).

        Parameters
        ----------
        mistakes
            d, the learner's mistake bound; it sets `unsure` unless that is given.
        copies
            k; by default the paper's k ≥ 20·γ·ln(T/β). Fewer are accepted as long as privacy holds, without a mistake
            certificate.
        unsure
            r; by default 18(dk+1) + 6·ln(1/β) + dk.
        counter_share
            The part of ε that pays for the private counter; optimised by default.
        """
        check(epsilon, delta, rounds, beta=beta, labels=labels, copies=copies, unsure=unsure)
        mistakes = mistake_bound(mistakes)
        asked = paper_plans.PaperRequest(epsilon, delta, rounds, mistakes, beta, copies, unsure, counter_share)
        size, gate, kept = paper_plans.best(asked)
        certificate = paper_plans.bounded(
            gate, copies=size.copies, unsure=size.unsure, mistakes=mistakes, rounds=rounds, beta=beta
        )
        if unsure is not None and certificate is None and mistakes != 1:
            said = f"mistakes={mistakes} is for the bound on them, and with this unsure there is none: leave one out"
            raise Unused("mistakes", said)
        note = (
            f"noise of scale γ = {size.scale:,.1f} votes, counter noise {float(size.counter.scale):,.1f} per node, "
            f"halts at a noisy count of {size.counter.limit:,}"
        )
        numbers = size.copies, size.copies, size.unsure, 0, 1, labels, size.order, beta
        promise, parts = Promise(epsilon, delta, rounds, labels), (Copies(*numbers, gate, size.counter),)
        return cls(promise, parts, "paper", Guarantee(kept, delta), certificate, mistakes, (note,))

    def explain(self) -> str:
        """What to expect of this plan, and why it is so, in plain words."""
        return text.explain(self)

    def verify(self) -> Guarantee:
        """Re-certify from the tables alone; raises ValueError if they do not keep what the plan states."""
        return verify.verify(self)

    def to_json(self) -> str:
        """The plan as JSON, tables as run-length lists of integers in decimal; `Plan.from_json` reads it back."""
        return files.write(self)

    @classmethod
    def from_json(cls, text: str | Path) -> Plan:
        """Read a plan that `to_json` wrote (text, or a path), check its form and re-certify its tables."""
        plan = cls(**files.read(text))
        plan.verify()
        return plan

    def plot(self) -> Picture:
        """What the plan does, in pictures: how sure the copies must be, how long they last, how clear the guide gets.

        A Matplotlib figure, which a notebook shows; from a script `plan.plot().savefig("plan.png")` writes it. Needs
        the extra `report`.
        """
        drawn: Picture = need("confide.planning.pictures", "report", "drawing a plan").picture(self)
        return drawn

    def __str__(self) -> str:
        return text.describe(self)

    def _repr_html_(self) -> str:
        return text.html(self)
