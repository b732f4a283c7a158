"""The table of evidence: Confide beside its peers, on the same streams in the same order, one run a cell.

    CONFIDE_DATA=folder python -m benchmarks.evidence             # goes on where it was stopped
    python -m benchmarks.evidence --quick                         # small streams, minutes
    python -m benchmarks.evidence --estimate                      # how long what is missing will take
    python -m benchmarks.evidence --check 10                      # ten random cells once more: do they agree?
    python -m benchmarks.evidence --cell sea/100000/1/confide/1   # one cell, printed
    python -m benchmarks.evidence.page                            # docs/evidence.md from the results

Results are lines of JSON in benchmarks/results/, a file a stream. `cells` says which cells there are and in which
order, `private` and `peers` how each method is run, `page` and `picture` how the page is made of the files.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the other benchmarks, which are scripts
