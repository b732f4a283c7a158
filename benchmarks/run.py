"""All benchmarks, one after the other (two hours), or two of them in short: python benchmarks/run.py [--quick]"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ORDER = (
    "foundation", "randomness", "counters", "trees", "coingame", "speed", "long", "realizable", "agnostic", "doubles",
)  # fmt: skip
QUICK = ("foundation", "speed")  # under two minutes together; most of the others have a --quick of their own


def main() -> None:
    for name in QUICK if "--quick" in sys.argv else ORDER:
        print(f"\n== benchmarks/{name}.py {' '.join(sys.argv[1:])}", flush=True)
        subprocess.run([sys.executable, str(HERE / f"{name}.py"), *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
