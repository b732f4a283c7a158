"""How far the private counters are off: measured errors beside the bounds they state.

    python benchmarks/counters.py           10⁴, 10⁶ and 10⁸ steps, under 3 minutes
    python benchmarks/counters.py --quick   10⁴ and 10⁶ steps, under 10 seconds

A counter's error does not depend on its inputs, so only the noise is simulated. For speed it is drawn here
from floating-point logarithms of seeded words; that is good enough to measure, and never used to protect.
"""

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from confide.kernels.compile import jit
from confide.privacy.counters import SmoothCounter, TreeCounter
from confide.privacy.random import Random

BETA = 0.05
CHUNK = 1 << 20


@jit
def walk(
    words: NDArray[np.uint64],
    steps: int,
    tree: bool,
    scale: float,
    place: NDArray[np.int64],
    chain: NDArray[np.int64],
    found: NDArray[np.float64],
) -> int:
    """Take up to `steps` steps on these words; returns how many were taken.

    place holds the label and the chain's length, chain the noise up to the end of each node, found the
    largest error, the sum of squared errors and the sum of the chain's lengths.
    """
    label, depth = place[0], place[1]
    used = 0
    taken = 0
    while taken < steps:
        while True:  # discrete Laplace: a signed geometric variable, where a negative zero is drawn again
            if used == words.size:
                place[0], place[1] = label, depth
                return taken
            word = words[used]
            used += 1
            uniform = (np.float64(word >> np.uint64(11)) + 0.5) * 2.0**-53
            noise = np.int64(-np.log(uniform) * scale)
            if (word & np.uint64(1)) == 0:
                break
            if noise != 0:
                noise = -noise
                break
        lowest = label & -label
        if tree:
            label += 1
            place_value = label & -label
            merged = 0
            while place_value > 1:
                place_value >>= 1
                merged += 1
        else:
            carried = label + lowest
            changed = label ^ carried
            run = -1
            while changed != 0:
                changed &= changed - 1
                run += 1
            label = carried | ((1 << (run - 1)) - 1)
            merged = 0 if lowest == 1 else run
        depth += 1 - merged
        chain[depth] = chain[depth - 1] + noise
        found[0] = max(found[0], abs(float(chain[depth])))
        found[1] += float(chain[depth]) ** 2
        found[2] += depth
        taken += 1
    place[0], place[1] = label, depth
    return taken


def simulate(counter: TreeCounter | SmoothCounter, horizon: int, rng: Random) -> tuple[float, float, float]:
    """The largest error, the root mean square error, and the mean number of nodes, of one run."""
    tree = isinstance(counter, TreeCounter)
    place = np.array([0 if isinstance(counter, TreeCounter) else (1 << counter.ones) - 1, 0])
    chain = np.zeros(128, dtype=np.int64)
    found = np.zeros(3)
    left = horizon
    while left:
        words = rng.words(min(CHUNK, left + left // 8 + 64))
        left -= walk(words, left, tree, float(counter.scale), place, chain, found)
    return found[0], float(np.sqrt(found[1] / horizon)), found[2] / horizon


def check_chains(rng: Random) -> None:
    """The simulated chains are those of the counters themselves."""
    for counter in (TreeCounter(1, 5000, rng=rng), SmoothCounter(1, 5000, rng=rng)):
        lengths = 0
        for _ in range(5000):
            counter.step(0)
            lengths += len(counter._state[2])
        if lengths / 5000 != simulate(counter, 5000, rng)[2]:
            raise AssertionError(f"the simulation does not follow {type(counter).__name__}")


def spread(values: list[float]) -> str:
    """Median, and the range that holds four runs of five."""
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"{middle:7.1f} [{low:7.1f}, {high:7.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="leave out 10⁸ steps")
    quick = parser.parse_args().quick
    rng = Random(seed=2023)
    check_chains(rng)
    print("epsilon = 1, shift = 1; insecure: seeded. Errors scale with shift/epsilon.")
    print(f"median [10 %, 90 %] over runs; the bound holds for all steps with probability {1 - BETA:.0%}")
    head = f"{'steps':>10} {'runs':>5}  {'counter':16} {'scale':>5} {'nodes':>5}"
    print(f"{head}  {'largest error':27} {'root mean square':27} {'bound':>7}  {'95 % of runs':>12}")
    plans = [(10**4, 201 if quick else 1001), (10**6, 21 if quick else 101), (10**8, 5)]
    for horizon, runs in plans[: 2 if quick else 3]:
        counters: dict[str, TreeCounter | SmoothCounter] = {
            "tree": TreeCounter(1, horizon, rng=rng),
            "smooth, balanced": SmoothCounter(1, horizon, rng=rng, balanced=True),
            "smooth": SmoothCounter(1, horizon, rng=rng),
        }
        for name, counter in counters.items():
            largest, rms, nodes = zip(*(simulate(counter, horizon, rng) for _ in range(runs)), strict=True)
            line = f"{horizon:10} {runs:5}  {name:16} {float(counter.scale):5.0f} {nodes[0]:5.1f}"
            tail = f"{np.quantile(largest, 1 - BETA):12.1f}" if runs >= 100 else f"{'too few runs':>12}"
            print(f"{line}  {spread(list(largest))} {spread(list(rms))} {counter.error(BETA):7.1f}  {tail}")
    for counter in (TreeCounter(1, 10**6), SmoothCounter(1, 10**6)):
        start = time.perf_counter()
        for _ in range(20_000):
            counter.step(1)
        microseconds = (time.perf_counter() - start) / 20_000 * 1e6
        print(f"{type(counter).__name__}.step: {microseconds:.1f} µs, with exact noise")


if __name__ == "__main__":
    main()
