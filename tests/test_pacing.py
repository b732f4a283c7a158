"""Pacing: what leaves does so at a tick, whatever it took, by two sleeps of which the last is always alike."""

import threading
import time

import pytest

from confide.pacing import LAST, Pace


class Clock:
    """A clock that work and sleep move on; a sleeper wakes late by a tenth of what it slept."""

    def __init__(self, late: float = 0.1) -> None:
        self.now, self.late = 1000.0, late
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds * (1 + self.late)

    def work(self, seconds: float) -> str:
        self.now += seconds
        return "done"


@pytest.mark.parametrize(
    ("work", "ticks"),
    [(0.0, 1), (0.003, 1), (0.0089, 1), (0.0095, 2), (0.012, 2), (0.0189, 2), (0.0191, 3), (0.5, 51)],
)
def test_work_of_any_length_leaves_at_a_tick_with_room_for_the_last_sleep(work: float, ticks: int) -> None:
    clock = Clock(late=0.0)
    assert Pace(0.01, clock=clock, sleep=clock.sleep).release(clock.work, work) == "done"
    assert clock.now == pytest.approx(1000 + ticks * 0.01, abs=1e-9)


def test_a_late_sleeper_is_as_late_whatever_the_work_took() -> None:
    lates, once = [], []
    for work in (0.0001, 0.004, 0.008):
        clock = Clock(late=0.1)
        Pace(0.01, clock=clock, sleep=clock.sleep).release(clock.work, work)
        lates.append(clock.now - 1000.01)
        single = Clock(late=0.1)
        single.work(work)
        single.sleep(1000.01 - single.now)  # what one sleep would do
        once.append(single.now - 1000.01)
        assert len(clock.slept) == 2 and clock.slept[1] <= LAST
    assert max(lates) - min(lates) <= 0.1 * LAST
    assert max(once) - min(once) > 7 * 0.1 * LAST


def test_errors_leave_at_the_tick_and_interrupts_at_once() -> None:
    clock = Clock(late=0.0)
    pace = Pace(0.01, clock=clock, sleep=clock.sleep)
    with pytest.raises(ValueError, match="to its asker"), pace:
        clock.work(0.002)
        raise ValueError("to its asker")
    assert clock.now == pytest.approx(1000.01, abs=1e-9)
    with pytest.raises(KeyboardInterrupt), pace:
        raise KeyboardInterrupt
    assert clock.now == pytest.approx(1000.01, abs=1e-9)


def test_threads_and_nested_uses_keep_their_own_beginnings() -> None:
    clock = Clock(late=0.0)
    pace = Pace(0.01, clock=clock, sleep=clock.sleep)
    with pace:
        clock.work(0.015)
        other = threading.Thread(target=pace.release, args=(clock.work, 0.001))
        other.start()
        other.join()
        assert clock.now == pytest.approx(1000.025, abs=1e-9)  # one tick after the other began
        with pace:
            clock.work(0.001)
        assert clock.now == pytest.approx(1000.035, abs=1e-9)
    assert clock.now == pytest.approx(1000.04, abs=1e-9)


@pytest.mark.parametrize("every", [0, -1, 0.002, float("nan"), float("inf"), "10ms", None])
def test_a_tick_that_cannot_be_kept_is_refused(every: object) -> None:
    with pytest.raises(ValueError, match="seconds"):
        Pace(every)  # type: ignore[arg-type]


def test_the_real_clock() -> None:
    began = time.perf_counter()
    with Pace(0.02):
        pass
    assert 0.0199 < time.perf_counter() - began < 60
