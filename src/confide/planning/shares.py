"""How a budget is shared between the copies and the guide: by one public rule, which says what it chose and why.

Nothing here is trusted: `verify` reads the finished integers. Proof page: docs/proofs/guide.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from confide._checks import Numbers, integer
from confide.planning import tight
from confide.planning.arguments import BETA, MOST_EPSILON, Unused, check_tables
from confide.planning.copies import copies_of
from confide.planning.design import Found
from confide.planning.guarantee import Guarantee
from confide.planning.guided import GuidePlan, TooNoisy
from confide.planning.parts import Part, Unreachable
from confide.privacy.renyi import renyi_from_epsilon

SHARES = (0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.02)
"""Parts of the Rényi budget that a guide beside copies may have, the largest first."""

PAYS = 2000
"""Labels a copy must see before copies are worth a part of the guide's budget."""

OFTEN = 0.1
"""The largest part of the live rounds that is planned to be unsure where copies are chosen."""

LEAST = 20.0
"""Labels for each deviation of the noise in their sum: with fewer a guide has learned nothing by the end."""

MOST_ROUNDS = 10**10
"""Rounds, with history, whose gradients a leaf of 64-bit integers holds whatever they are."""

_UNDER = 1 - 1e-9  # what the search leaves to rounding

Guide = Literal["auto"] | float | None


@dataclass(frozen=True)
class Shared(Numbers):
    """What a budget became: tables for copies, a guide, or both."""

    found: Found | None
    guide: GuidePlan | None
    notes: tuple[str, ...]

    def parts(self, labels: int, beta: float, relay: int) -> tuple[Part, ...]:
        """The parts of a plan: copies, and the guide, if there are any."""
        voters = () if self.found is None else (copies_of(self.found, labels, beta, relay),)
        return (*voters, *(() if self.guide is None else (self.guide,)))

    def got(self, delta: float) -> Guarantee | None:
        """What copies alone keep, as their search has found it; None where it is still to be computed."""
        return None if self.found is None or self.guide is not None else Guarantee(self.found.got.epsilon, delta)


@dataclass(frozen=True)
class Wish(Numbers):
    """What `Plan.tight` is asked for beside what `tight.TightRequest` holds; see there."""

    guide: Guide = "auto"
    unit_labels: int = 1
    history: int = 0
    lean: bool = False
    """Whether what is chosen may lean; what is given leans only if `TightRequest` says so."""

    apart: bool = True
    """Whether units are rounds: see `GuidePlan.apart`."""

    def of_guide(self, labels: int) -> tuple[int, int, int, bool, bool]:
        """What a guide is planned with beside its budget and its rounds."""
        return labels, self.unit_labels, self.history, True, self.apart


def best(asked: tight.TightRequest, wish: Wish) -> Shared:
    """The plan that was asked for, or ValueError with the nearest that can be had."""
    _check(asked, wish)
    given = any(value is not None for value in (asked.copies, asked.unsure, asked.polls))
    _refuse_unused(asked, wish, copies=wish.guide != 1, guide=wish.guide is not None)
    shared = _shared(asked, wish, given)
    kept = wish if wish.guide != "auto" else replace(wish, history=0)  # free of charge for copies, and a note says so
    _refuse_unused(asked, kept, copies=shared.found is not None, guide=shared.guide is not None)
    return shared


def endless(asked: tight.TightRequest, wish: Wish) -> Shared:
    """The plan that was asked for without a last round. It is a guide alone: copies need a last round."""
    _check(asked, wish)
    if wish.guide not in ("auto", 1) or any(value is not None for value in (asked.copies, asked.unsure, asked.polls)):
        raise ValueError("copies are planned for a number of rounds: give rounds, or leave copies and guide out")
    _refuse_unused(asked, wish, copies=False, guide=True)
    try:
        guide = GuidePlan.best(asked.epsilon, asked.delta, None, *wish.of_guide(asked.labels))
    except TooNoisy:
        raise ValueError(
            f"epsilon={asked.epsilon:g} at delta={asked.delta:g} asks for more noise than can be drawn: take more of "
            "either, or fewer unit_labels"
        ) from None
    return Shared(None, guide, ("no last round: copies would need one, so the guide answers alone",))


def _shared(asked: tight.TightRequest, wish: Wish, given: bool) -> Shared:
    if wish.guide is None:
        return _without(asked)
    if wish.guide == 1:
        if given:
            raise ValueError("guide=1.0 leaves nothing for copies: leave copies, unsure and polls out")
        return _alone(asked, wish, ())
    if wish.guide != "auto":
        return _beside(asked, wish, float(wish.guide))
    return _largest(asked, wish) if given else _chosen(asked, wish)


def _check(asked: tight.TightRequest, wish: Wish) -> None:
    check_tables(asked.epsilon)
    tight.check_dissent(asked.dissent)
    integer(wish.unit_labels, "unit_labels", 1)
    integer(wish.history, "history", 0)
    share = wish.guide
    if not (share is None or share == "auto" or (isinstance(share, int | float) and 0 < share <= 1)):
        said = 'must be "auto", None, or its part of the budget: above 0, and 1.0 for a guide alone'
        raise ValueError(f"guide={share!r} {said}")


def _without(asked: tight.TightRequest) -> Shared:
    found = tight.best(asked)
    return Shared(found, None, found.notes)


_COPIES = {"silent": 0, "unit_unsure": 1, "beta": BETA, "dissent": tight.DISSENT, "lean": None, "relay": False}
"""Arguments that copies alone use, each with the value that asks for nothing."""

_GUIDE = {"unit_labels": 1, "history": 0}
"""The same for the guide."""


def _refuse_unused(asked: tight.TightRequest, wish: Wish, copies: bool, guide: bool) -> None:
    """Refuse a number that the plan would not heed."""
    if not copies:
        _refuse(_COPIES, vars(asked), "is for copies, and this plan has none: leave it out, or give copies")
    if not guide:
        _refuse(_GUIDE, vars(wish), "is for a guide, and this plan has none: leave it out, or plan for a guide")
    if asked.copies is not None:
        _refuse({"dissent": tight.DISSENT}, vars(asked), "is used to choose copies, and these are given: leave it out")


def _refuse(neutral: Mapping[str, Any], given: Mapping[str, Any], said: str) -> None:
    for name, value in neutral.items():
        if given[name] not in (None, value):
            raise Unused(name, f"{name}={given[name]} {said}")


def _beside(asked: tight.TightRequest, wish: Wish, share: float) -> Shared:
    """Copies on what this part for a guide leaves of the budget; the guide then gets all that the copies left."""
    found = tight.best(replace(asked, guide=share))
    got = found.got
    left = renyi_from_epsilon(asked.epsilon * _UNDER, got.order, got.rest) - got.spent.renyi
    mu2 = 2 * left * _UNDER / got.order
    guide = GuidePlan.at(mu2, None if asked.relay else asked.rounds, *wish.of_guide(asked.labels))
    note = f"guide: {left / (left + got.spent.renyi):.0%} of the budget; it answers whenever the copies do not"
    return Shared(found, guide, (*found.notes, note))


def _largest(asked: tight.TightRequest, wish: Wish) -> Shared:
    """Keep what was given. The guide gets the largest part with which the copies can still answer."""
    for share in SHARES:
        try:
            return _beside(asked, wish, share)
        except ValueError:
            continue
    found = tight.best(asked)  # says what is wrong where not even that is to be had
    note = "no guide: the copies, unsure answers and polls that were given need the whole budget"
    note += "; history costs copies nothing" if wish.history else ""
    return Shared(found, None, (*found.notes, note))


def _chosen(asked: tight.TightRequest, wish: Wish) -> Shared:
    """Copies and a guide, if each copy would see enough labels; else a guide alone."""
    labels = asked.rounds + wish.history
    try:
        shared = _beside(asked, wish, SHARES[0])
    except ValueError:
        return _alone(asked, wish, ("copies=0: no number of copies keeps this promise beside a guide",))
    assert shared.found is not None
    each = labels / shared.found.copies
    if each >= PAYS:
        return _often(asked, wish, labels // PAYS)
    enough = _pay_from(asked, _longer(labels, each))
    said = (
        f"copies=0: {shared.found.copies:,} copies would see {tight.labels_each(labels, shared.found.copies)} each, "
        f"so the guide answers alone; from about {enough:,.0f} rounds on copies would pay"
    )
    return _alone(asked, wish, (said.replace("would see about one label each", "would see one label each"),))


def _longer(rounds: float, each: float) -> float:
    """The rounds in which each of the fewest copies sees PAYS labels, where in so many it sees `each`.

    These copies grow about as the fourth root of the rounds, so labels for each of them as their 3/4th power.
    """
    return float(rounds * (PAYS / each) ** (4 / 3))


def _pay_from(asked: tight.TightRequest, near: float) -> float:
    """The rounds from which on copies are planned, to two digits and rounded up; `near` is a first estimate.

    The estimate is from far away. The fewest copies for about so many rounds correct it: within 1 % of what is so.
    """
    rounds = int(float(f"{near:.1g}"))
    with suppress(ValueError):  # more rounds than can be planned for
        near = _longer(rounds, rounds / _fewest(replace(asked, rounds=rounds, guide=SHARES[0])))
    digits = 10 ** (math.floor(math.log10(near)) - 1)
    return float(math.ceil(near / digits) * digits)


@lru_cache(maxsize=256)
def _fewest(asked: tight.TightRequest) -> int:
    return tight.best(asked).copies


def _often(asked: tight.TightRequest, wish: Wish, copies: int) -> Shared:
    """As many copies as are taught enough, and as many unsure answers as they leave room for: a narrow gate answers."""
    unsure = tight.most_unsure(replace(asked, guide=SHARES[0], copies=copies), OFTEN)
    lean = ("fill" if asked.labels == 2 else "additive") if wish.lean else None
    shared: Shared | None = None
    while shared is None:
        try:
            shared = _beside(replace(asked, copies=copies, unsure=unsure, lean=lean), wish, SHARES[0])
        except (tight.Refused, Unreachable):  # the room was measured without the lean, for a few sizes of polls
            if unsure < 10:
                return _alone(asked, wish, ("copies=0: no number of copies keeps this promise beside a guide",))
            unsure = unsure * 4 // 5
    notes = (
        f"copies={2 * copies if asked.relay else copies:,}: each is taught "
        f"{tight.labels_each(asked.rounds + wish.history, copies)}",
        f"unsure={unsure:,}: as many as so many copies leave room for",
    )
    return replace(shared, notes=(*notes, *shared.notes))


def _alone(asked: tight.TightRequest, wish: Wish, notes: tuple[str, ...]) -> Shared:
    guide = _made(asked, wish)
    if guide is None or guide.strength < LEAST:
        raise ValueError(
            f"epsilon={asked.epsilon:g} at delta={asked.delta:g} over rounds={asked.rounds} is too small for anything "
            f"to be learned: the noise would hide it all; {_enough(asked, wish)}"
        )
    return Shared(None, guide, notes)


def _made(asked: tight.TightRequest, wish: Wish) -> GuidePlan | None:
    """A guide with the whole budget; None where ε asks for more noise at this δ than can be drawn."""
    if asked.rounds + wish.history > MOST_ROUNDS:
        raise ValueError(
            f"rounds={asked.rounds} are more than a guide's sums hold in 64 bits; plan for rounds={MOST_ROUNDS} with "
            "its history at the most, then for a new run"
        )
    try:
        return GuidePlan.best(asked.epsilon, asked.delta, asked.rounds, *wish.of_guide(asked.labels))
    except TooNoisy:
        return None


def _enough(asked: tight.TightRequest, wish: Wish) -> str:
    """The nearest budget, and the nearest number of rounds, with which something is learned."""
    epsilon, rounds = asked.epsilon, asked.rounds

    def does(epsilon: float, rounds: int) -> bool:
        made = _made(replace(asked, epsilon=epsilon, rounds=rounds), wish)
        return made is not None and made.strength >= LEAST

    while not does(epsilon, asked.rounds) and epsilon < MOST_EPSILON:
        epsilon = float(f"{epsilon * 1.3:.2g}") if epsilon > 1e-3 else epsilon * 4
    ways = [f"epsilon={epsilon:.2g}"] if epsilon < MOST_EPSILON else []
    while rounds < MOST_ROUNDS / 2 and not does(asked.epsilon, rounds):
        rounds = int(float(f"{rounds * 1.5 + 1:.2g}"))
    ways += [f"rounds={rounds}"] if rounds < MOST_ROUNDS / 2 else []
    return f"{' can, or '.join(ways)} can" if ways else "plan for more of both"
