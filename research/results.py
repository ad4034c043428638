"""`make results`: runs the sweeps of research/sweeps on real models and data, and writes their reports.

    python research/results.py --models FOLDER --data FOLDER [--folder .results] [SWEEP.yaml ...]

It starts a server of its own, whose database and artifacts stay in the folder. A sweep that was interrupted continues
when the command is repeated, and one that has ended is only reported again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

RESEARCH = Path(__file__).resolve().parent
sys.path.insert(0, str(RESEARCH.parent / "scripts"))

from demo import server  # noqa: E402

MVPCTL = Path(sys.executable).parent / "mvpctl"
_ENDED_WITHOUT_A_PASS = 5  # exit code: the sweep has results, and none passes its gates


def main(argv: Sequence[str]) -> int:
    """Runs sweeps one after the other; returns the exit code of the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="folder of model folders")
    parser.add_argument("--data", type=Path, required=True, help="folder with the data of tasks, in the layout of GLUE")
    parser.add_argument("--folder", type=Path, default=Path(".results"), help="of the server; default: .results")
    parser.add_argument("--reports", type=Path, default=RESEARCH / "results", help="where reports are written")
    parser.add_argument("sweeps", nargs="*", type=Path, help="job files with a sweep; default: research/sweeps/*.yaml")
    args = parser.parse_args(argv)
    home = args.folder.resolve()
    home.mkdir(parents=True, exist_ok=True)
    options = ["--models", args.models.resolve(), "--data", args.data.resolve(), "--executor", "local"]
    with server(home, home / "server.log", *options) as address:
        for file in args.sweeps or sorted(RESEARCH.glob("sweeps/*.yaml")):
            code = run(address, file, args.reports / file.stem)
            if code:
                return code
    return 0


def run(address: str, file: Path, report: Path) -> int:
    """Runs the sweep of a file to its end, and writes its report. Returns an exit code."""
    name = file.stem
    created = mvpctl(address, "sweep", "create", "-f", file, "--id", name, "--request-id", f"results-{name}", "--wait")
    if created not in (0, _ENDED_WITHOUT_A_PASS):
        print(f"{name}: to run what is missing: mvpctl sweep retry {name}", file=sys.stderr)
        return created
    return mvpctl(address, "sweep", "report", name, report)


def mvpctl(address: str, *arguments: str | Path) -> int:
    """Runs a command of mvpctl; returns its exit code."""
    return subprocess.run([MVPCTL, *arguments, "--address", address], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
