"""Periods: what a person may teach is counted anew in each of them, in so many of them, and then never again.

Rounds are cut into periods by their numbers: everybody knows them beforehand, and a load finds them again. Claims and
proofs: docs/proofs/guide.md, Theorem 13″.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from confide.planning.parts import Price
from confide.privacy.exact import Noise

if TYPE_CHECKING:
    from confide.planning.guided import GuidePlan

__all__ = ["Periods", "together"]

MOST = 1 << 46
"""A person's count is below this: a ledger keeps all of them in one number of bytes."""


class Periods(NamedTuple):
    """How labels of people are counted by periods.

    What is kept of a person is one whole number, 0 at first, which never falls: the period in which they taught last,
    how much of their life is used up, in labels, and how many labels they taught. A period in which somebody teaches
    uses up all of its labels when the next begins. So a write that comes late, or twice, gives nothing back.

    Examples
    --------
    >>> year = Periods(per=1000, most=2, labels=3)
    >>> count = 0
    >>> for rounds in (5, 6, 7, 1000, 1001, 3000):
    ...     more = year.one_more(count, year.at(rounds))
    ...     print(rounds, more is not None)
    ...     count = count if more is None else more
    5 True
    6 True
    7 True
    1000 False
    1001 True
    3000 False
    >>> year.taught(count), year.used(count), year.over(count, year.at(3000))
    (4, 2, True)
    """

    per: int
    """Rounds of a period."""
    most: int
    """n: periods in which one person teaches, at most."""
    labels: int
    """c: labels of one person that teach in one period, at most."""

    def check(self, rounds: int | None) -> None:
        """ValueError for more periods than so many rounds have, or than a count has room for."""
        if self.labels * self.most > 1000:
            raise ValueError(f"periods={self.most} of {self.labels} labels each are more than 1,000 labels: take fewer")
        if rounds is not None and self.most > (there := -(-rounds // self.per)):
            raise ValueError(f"periods={self.most} are more than the {there:,} that {rounds:,} rounds have: take fewer")

    def at(self, rounds: int) -> int:
        """The period of a round, by its number; what is taught before the first round is in the first, 0."""
        return max(0, rounds - 1) // self.per

    def one_more(self, count: int, period: int) -> int | None:
        """What the count of a person becomes by one more label in this period; None where it teaches nothing."""
        last, slots, taught = self._read(count)
        if slots and period <= last:
            if period < last or slots % self.labels == 0:
                return None
            slots += 1
        else:
            slots = self.used(count) * self.labels + 1
        wide = self._wide
        made = (period * wide + slots) * wide + taught + 1
        return made if slots < wide and made < MOST else None

    def taught(self, count: int) -> int:
        """Labels that a person with this count has taught."""
        return count % self._wide

    def used(self, count: int) -> int:
        """Periods in which they did."""
        return -(-self._read(count)[1] // self.labels)

    def left(self, count: int, period: int) -> int:
        """Labels of theirs that still teach in this period."""
        last, slots, _ = self._read(count)
        if slots and period <= last:
            return -slots % self.labels if period == last else 0
        return self.labels if self.used(count) < self.most else 0

    def over(self, count: int, period: int) -> bool:
        """Whether they teach nothing any more, now or in a later period."""
        last, slots, _ = self._read(count)
        return self.used(count) == self.most and (period > last or slots == self.most * self.labels)

    @property
    def _wide(self) -> int:
        return self.most * self.labels + 1

    def _read(self, count: int) -> tuple[int, int, int]:
        rest, taught = divmod(count, self._wide)
        return *divmod(rest, self._wide), taught


def together(guide: GuidePlan, periods: Periods) -> Price:
    """What a guide costs one person in all their periods together.

    Gradients of different epochs lie in noise of their own, so their squares add up; those of one epoch may point one
    way. An epoch meets so many periods, at most. Proof page: docs/proofs/guide.md, Theorem 13″.
    """
    most, length = periods.most, max(guide.leaves * guide.leaf, guide.range_rounds)
    meets = min(most, (length - 2) // periods.per + 2) if guide.endless else most
    whole, rest = divmod(most, meets)
    mu2 = (whole * meets**2 + rest**2) * guide.labels_mu2 + guide.range_mu2
    nodes, *others = guide.noises
    epochs = most if guide.endless else 1
    return Price(mu2, (Noise(epochs * nodes.values, nodes.variance), *others), shared=not guide.endless)
