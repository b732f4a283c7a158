"""All benchmarks, one after the other (hours), or two of them in short: python benchmarks/run.py [--quick]"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FIRST = ("foundation", "randomness", "counters", "trees", "coingame", "speed")  # the others follow by name
ALL = (*FIRST, *sorted(file.stem for file in HERE.glob("*.py") if file.stem not in (*FIRST, "run", "service_river")))
QUICK = ("foundation", "speed")  # under two minutes together; most of the others have a --quick of their own


def main() -> None:
    for name in QUICK if "--quick" in sys.argv else ALL:
        print(f"\n== benchmarks/{name}.py {' '.join(sys.argv[1:])}", flush=True)
        subprocess.run([sys.executable, str(HERE / f"{name}.py"), *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
