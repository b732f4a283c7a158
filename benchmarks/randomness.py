"""What randomness costs: words a second, and the time of single draws.

python benchmarks/randomness.py            a few seconds
python benchmarks/randomness.py --quick    a fifth of the calls
"""

import argparse
import time
from collections.abc import Callable
from fractions import Fraction

from confide.privacy.draws import exact_gaussian
from confide.privacy.random import Prf, Random, discrete_laplace


def seconds(call: Callable[[], object], times: int) -> float:
    """The best mean time of a call over five rounds."""
    call()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, (time.perf_counter() - start) / times)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the calls")
    calls = 600 if parser.parse_args().quick else 3000
    rng, prf = Random(), Prf()
    print(f"words(2²²): {8 * 2**22 / seconds(lambda: rng.words(2**22), 3) / 1e9:.1f} GB/s")
    print(f"below_many(10⁶, 10⁵): {seconds(lambda: rng.below_many(10**6, 10**5), 5) / 1e5 * 1e9:.1f} ns each")
    noise = seconds(lambda: discrete_laplace(rng, Fraction(200, 3), size=10**4), 5) / 1e4
    print(f"discrete_laplace(200/3, size=10⁴): {noise * 1e9:.0f} ns each")
    single: dict[str, Callable[[], object]] = {
        "word()": rng.word,
        "below(10⁶)": lambda: rng.below(10**6),
        "subset(10⁶, 129)": lambda: rng.subset(10**6, 129),
        "subset(4000, 129)": lambda: rng.subset(4000, 129),
        "discrete_laplace(200/3)": lambda: discrete_laplace(rng, Fraction(200, 3)),
        "exact_gaussian(100)": lambda: exact_gaussian(rng.below, 100, 1),
        "Prf.copy_of": lambda: prf.copy_of("somebody", 4000),
    }
    for name, call in single.items():
        print(f"{name}: {seconds(call, calls) * 1e6:.2f} µs")


if __name__ == "__main__":
    main()
