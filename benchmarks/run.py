"""All benchmarks, one after the other: python benchmarks/run.py [--quick]"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ORDER = ("foundation", "randomness", "counters", "trees", "coingame")


def main() -> None:
    for name in ORDER:
        print(f"\n== benchmarks/{name}.py {' '.join(sys.argv[1:])}", flush=True)
        subprocess.run([sys.executable, str(HERE / f"{name}.py"), *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
