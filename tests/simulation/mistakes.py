"""Which planted mistakes are found, in one process: `python -m tests.simulation.mistakes NAME=FIRST..LAST …`.

It prints JSON, the first seed of each that fails. PYTHONHASHSEED must be 0, as for all histories.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from .planted import PLANTED
from .searching import failing


def main() -> None:
    assert os.environ["PYTHONHASHSEED"] == "0"
    found = {}
    with tempfile.TemporaryDirectory(prefix="mvprune-simulation-") as tempfile.tempdir:
        for given in sys.argv[1:]:
            name, _, seeds = given.partition("=")
            first, _, last = seeds.partition("..")
            with PLANTED[name]():
                found[name] = next(failing([str(number) for number in range(int(first), int(last) + 1)]), None)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
