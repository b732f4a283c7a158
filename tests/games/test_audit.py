"""The audit: no leak gives nothing, a leak is found, a broken promise sounds the alarm."""

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from typer.testing import CliRunner

import confide
from confide.games import (
    OnlineGame,
    RandomAdversary,
    Region,
    Round,
    View,
    WorstMargin,
    audit,
    audit_game,
    yardstick,
)
from confide.games.bounds import Choice, at_least, at_most, both_ways, choose, measure
from confide.games.draw import draw
from confide.games.learned import Learned, summary
from confide.games.power import Fault, power
from confide.games.scenarios import SCENARIOS, SplitPOP, split_plan
from confide.planning.guarantee import Guarantee
from confide.pop.base import Answer
from confide.privacy.gate import Gate

pytestmark = pytest.mark.claim("audit.md")

PLAN = split_plan(8.0, unsure=20, rounds=300, copies=160)


@dataclass
class Coin:
    """A mechanism that shows bit 1 with probability `one` after a challenge at bit 1, `zero` after one at bit 0."""

    zero: float
    one: float
    told: int = 0

    def predict(self, x: Any) -> Answer:
        p = (self.zero, self.one)[self.told]
        return Answer(int(np.random.default_rng().random() < p), True, "ticket")

    def learn(self, ticket: str, y: int) -> None:
        self.told = y


@dataclass(frozen=True)
class Asker:
    """Tells the bit, then asks."""

    scored: bool = False
    rounds: int = 2

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        yield Round((0, 0), (0, 1), challenge=True)
        yield Round((0, None))


@dataclass(frozen=True)
class ScoringAsker(Asker):
    def score(self, view: View) -> float:
        return float(view.answers[1].label)


@pytest.mark.parametrize("adversary", [Asker(), ScoringAsker()])
def test_randomized_response_is_measured_as_it_is(adversary: Asker) -> None:
    """ε = ln 9 exactly; each bound may fail with the audit's own probability, here 10⁻⁷."""
    report = audit(lambda: Coin(0.1, 0.9), adversary, 1500, certificate=(np.log(9.0), 1e-6), confidence=1 - 1e-7)
    assert 0.6 < report.advantage < 0.8 and 1.3 < report.epsilon < np.log(9)
    assert not report.alarm
    broken = audit(lambda: Coin(0.1, 0.9), adversary, 1500, certificate=(1.0, 1e-6))
    assert broken.alarm and broken.alarm_point is not None and "ALARM" in str(broken)


def test_no_leak_gives_zero_as_often_as_stated() -> None:
    """200 whole audits at 90 %, with scores of many kinds: more than 45 with anything but 0 has chance below 10⁻⁶."""
    rng = np.random.default_rng(5)
    kinds: list[Callable[[int], Any]] = [
        lambda n: rng.normal(size=n),
        lambda n: rng.geometric(0.02, size=n).astype(float),
        lambda n: rng.integers(3, size=n).astype(float),
        lambda n: rng.standard_cauchy(size=n),
    ]
    found = 0
    for i in range(200):
        kind = kinds[i % 4]
        train, test = [kind(200) for _ in range(2)], [kind(600) for _ in range(2)]
        cuts = np.unique(np.concatenate(train))
        tails = [1 - np.searchsorted(np.sort(part), cuts, side="right") / part.size for part in train]
        points = measure(choose(cuts, tails[0], tails[1], 600, 0.1, 1e-6), *test, 0.1)
        found += any(point.advantage > 0 or point.epsilon(1e-6) > 0 for point in points)
    assert binom.sf(45, 200, 0.1) < 1e-6 and found <= 45


def test_testing_on_the_training_games_would_be_caught() -> None:
    """The same check rejects an auditor that picks its threshold on the games it tests."""
    rng = np.random.default_rng(6)
    found = 0
    for _ in range(100):
        zero, one = (rng.normal(size=400) for _ in range(2))
        cuts = np.unique(np.concatenate([zero, one]))
        tails = [1 - np.searchsorted(np.sort(part), cuts, side="right") / part.size for part in (zero, one)]
        gaps = tails[1] - tails[0]
        found += gaps.max() - 1.64 * np.sqrt(0.5 / 400) > 0  # a bound for one threshold, used at the best of all
    assert found > 20


def test_a_learned_score_finds_what_a_count_hides() -> None:
    """Bit 1 moves mass from the middle to both ends: no single direction shows it, bins do."""
    rng = np.random.default_rng(7)
    zero = np.stack([rng.integers(0, 9, 3000), rng.integers(0, 5, 3000)], axis=1).astype(float)
    one = np.stack([rng.choice([0, 1, 7, 8], 3000), rng.integers(0, 5, 3000)], axis=1).astype(float)
    learned = Learned.fit(zero[:1500], one[:1500])
    rates = [(learned.scores(rows[1500:]) > 0).mean() for rows in (zero, one)]
    assert rates[1] - rates[0] > 0.45
    assert len(summary(View())) == len(summary(View(answers=[(1, True)], halted=True)))


def test_worst_margin_end_to_end_is_close_to_the_yardstick_and_below_the_certificate() -> None:
    exact, _ = yardstick(PLAN)
    report = audit(SplitPOP(PLAN), WorstMargin(PLAN), 1200, certificate=PLAN, yardstick=exact, confidence=0.95)
    assert 0.62 * exact.advantage < report.advantage < Region.of(PLAN).advantage
    assert 0.5 < report.epsilon < report.gaussian_epsilon < 8 and not report.alarm
    false, true = report.best.false, report.best.true
    assert true - false > 0.55 * (exact.power(false) - false)


def test_too_little_noise_sounds_the_alarm() -> None:
    """The POP runs a plan for ε = 20, and is held to one for ε = 4."""
    weak = split_plan(20.0, unsure=20, rounds=300, copies=160)
    region = Region.of(split_plan(4.0, unsure=20, rounds=300, copies=300))
    report = audit(SplitPOP(weak), WorstMargin(weak), 500, certificate=region)
    assert report.alarm and report.alarm_point is not None
    assert report.alarm_point.true > region.power(report.alarm_point.false)
    assert not audit(SplitPOP(weak), WorstMargin(weak), 100, certificate=weak).alarm


def test_a_random_adversary_finds_nothing() -> None:
    report = audit(SplitPOP(PLAN), RandomAdversary(20, 2), 150, certificate=PLAN, confidence=1 - 1e-6)
    assert report.advantage == report.epsilon == 0 and not report.alarm and report.training > 0


def test_an_audit_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confide.games.engine.BATCH", 50)
    make: Callable[[], Any] = lambda: Coin(0.2, 0.8)  # noqa: E731
    first = audit(make, ScoringAsker(), 120, folder=tmp_path, name="coins")
    assert len(list(tmp_path.rglob("batch-*.npz"))) == 3
    again = audit(make, ScoringAsker(), 120, folder=tmp_path, name="coins")
    assert again.points == first.points  # nothing was played again
    next(tmp_path.rglob("batch-00001.npz")).unlink()
    third = audit(make, ScoringAsker(), 120, folder=tmp_path, name="coins")
    assert [point.games for point in third.points] == [point.games for point in first.points]
    audit(make, ScoringAsker(), 130, folder=tmp_path, name="coins")  # all of them, in a place of their own
    assert len(list(tmp_path.rglob("batch-*.npz"))) == 6


@dataclass(frozen=True)
class Backwards(Asker):
    """Takes the label for bit 0 that a leaking mechanism shows at bit 1."""

    def score(self, view: View) -> float:
        return -float(view.answers[1].label)


def test_a_given_score_is_tested_in_both_directions() -> None:
    report = audit(lambda: Coin(0.1, 0.9), Backwards(), 600, certificate=(1.0, 1e-6))
    assert report.alarm and report.advantage > 0.6 and report.best.aim == "backwards"
    quiet = audit(lambda: Coin(0.5, 0.5), Backwards(), 600, certificate=(1.0, 1e-6), confidence=1 - 1e-6)
    assert not quiet.alarm and quiet.advantage == 0


def test_both_directions_hold_together() -> None:
    choices = both_ways([Choice(0.5, 0.75, "epsilon"), Choice(1.5, 0.25, "curve")])
    rng = np.random.default_rng(2)
    zero, one = (rng.integers(3, size=400).astype(float) for _ in range(2))
    points = measure(choices, zero, one, 0.04)
    assert sum(choice.share for choice in choices[2:]) == pytest.approx(0.1 * sum(c.share for c in choices))
    for choice, point in zip(choices, points, strict=True):
        level = 0.04 * choice.share / sum(one.share for one in choices) / 2
        hits = [int((scores > choice.threshold).sum()) for scores in (zero, one)]
        hits = [400 - n for n in hits] if choice.below else hits
        assert (point.false, point.true) == (at_most(hits[0], 400, level), at_least(hits[1], 400, level))


def test_too_little_noise_sounds_the_alarm_after_a_silent_start_too() -> None:
    """40 % of the rounds are silent; the POP runs a plan for ε = 20, and is held to one for ε = 4."""
    weak = split_plan(20.0, unsure=20, rounds=500, copies=160, silent=200)
    region = Region.of(split_plan(4.0, unsure=20, rounds=500, copies=300, silent=200))
    report = audit(SplitPOP(weak), WorstMargin(weak), 600, certificate=region)
    assert report.alarm and report.misfit is None and report.advantage > 0.5


def test_a_mechanism_that_does_not_follow_its_tables_is_a_misfit() -> None:
    """An entry of the gate's table 15 % too small: far below what the certificate's alarm can see."""
    found = power(PLAN, 300, Fault(entry=0.15), ones=100)
    assert found.fit > 1 - 1e-6 and found.certificate < 1e-3
    table = PLAN.gate.table.copy()
    table[39:41] *= 0.85
    forged = PLAN.but(gate=Gate(table))
    wrong = Unverified(**{name: getattr(forged, name) for name in forged.__dataclass_fields__})
    report = audit(SplitPOP(wrong), WorstMargin(PLAN, ones=100), 300, certificate=PLAN)
    assert report.misfit is not None and not report.alarm
    assert "MISFIT" in str(report) and report.as_dict()["misfit"] == str(report.misfit)
    right = audit(SplitPOP(PLAN), WorstMargin(PLAN, ones=100), 300, certificate=PLAN)
    assert right.misfit is None and "MISFIT" not in str(right)


class Unverified(confide.Plan):
    def verify(self) -> Guarantee:
        return self.guarantee


def test_all_cores_json_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confide.games.engine.BATCH", 20)
    report = audit_game(
        OnlineGame(SplitPOP(PLAN), WorstMargin(PLAN), PLAN.rounds), 40, certificate=PLAN, workers=2, name="two workers"
    )
    assert report.games == 40 and report.points[0].games == (40, 40)
    report.write_json(tmp_path / "report.json")
    held = json.loads((tmp_path / "report.json").read_text())
    assert held["advantage at least"] == report.advantage and len(held["curve"]) == len(report.points)
    draw([report, report, report], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="picklable"):
        audit(lambda: Coin(0.2, 0.8), Asker(), 40, workers=2)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="how many rounds"):
        audit(Coin, object(), 100)  # type: ignore[arg-type]
    for wrong in ({"games": 3}, {"confidence": 1.0}, {"delta": 0.0}):
        with pytest.raises(ValueError):
            audit(lambda: Coin(0.2, 0.8), Asker(), **{"games": 100, **wrong})  # type: ignore[arg-type]


def test_the_command(tmp_path: Path) -> None:
    from confide.cli.app import app

    names = ["audit", "drop8,person1", "--quick", "--games", "0.2", "--workers", "1"]
    files = ["--json", str(tmp_path / "a.json"), "--plot", str(tmp_path / "a.png"), "--folder", str(tmp_path / "held")]
    result = CliRunner().invoke(app, [*names, *files])
    assert result.exit_code == 0, result.output
    assert "last drop" in result.output and json.loads((tmp_path / "a.json").read_text())[0]["alarm"] is False
    levels = [held["alarm level"] for held in json.loads((tmp_path / "a.json").read_text())]
    assert sum(levels) == pytest.approx(1e-6) and "alarm level 1e-06, all together" in result.output
    assert (tmp_path / "a.png").exists() and (tmp_path / "held" / "drop8-quick").exists()
    refused = CliRunner().invoke(app, ["audit", "no-such-audit"])
    assert isinstance(refused.exception, ValueError) and "no audit is called" in str(refused.exception)
    assert len({scenario.key for scenario in SCENARIOS}) == len(SCENARIOS)
