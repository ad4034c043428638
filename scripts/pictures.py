"""`make pictures`: one run of the demo, and what the README shows of it: its text, its session, its report.

python scripts/pictures.py    # runs the demo, some minutes
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from report_picture import write_picture
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
README, IMAGES = ROOT / "README.md", ROOT / "docs" / "images"
BEGIN, END = "<!-- make pictures: begin -->\n", "<!-- make pictures: end -->\n"
OPTIONS = ("--evaluate-every", "50")  # the report shows how the metrics went
COLUMNS = 110
_SHOWN = 4  # lines of a phase's progress
_PROGRESS = re.compile(r"RUNNING  (\w+) \d+/\d+")
_PATH = re.compile(rf"{re.escape(str(ROOT))}/(?:\.demo/inputs/\S*/)?")
_ARTIFACT = "the artifact, with its manifest.json, is in "


def run_demo() -> list[str]:
    """The demo's lines, which are printed as they come. Raises SystemExit where it fails."""
    command = [sys.executable, ROOT / "scripts" / "demo.py", *OPTIONS]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as demo:
        for line in demo.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    if demo.returncode:
        sys.exit(demo.returncode)
    return lines


def transcript(lines: Sequence[str]) -> list[str]:
    """The lines that are shown: paths without what this machine adds, the command in lines of 110 characters, of each
    phase some of the progress."""
    shown: list[str] = []
    for phase, group in groupby(lines, lambda line: found[1] if (found := _PROGRESS.match(line)) else None):
        found = list(group)
        shown += found if phase is None else some(found)
    return [part for line in shown for part in folded(_PATH.sub(_short, line))]


def some(lines: Sequence[str]) -> list[str]:
    """At most four of the lines, the first and the last among them."""
    if len(lines) <= _SHOWN:
        return list(lines)
    return [lines[round(number * (len(lines) - 1) / (_SHOWN - 1))] for number in range(_SHOWN)]


def _short(found: re.Match[str]) -> str:
    return "…/" if ".demo/inputs" in found[0] else ""


def folded(line: str) -> list[str]:
    """A command in as many lines as it needs, broken before options."""
    parts, rows = re.split(r" (?=--)", line), [""]
    for part in parts:
        if rows[-1] and len(rows[-1]) + 1 + len(part) > COLUMNS:
            rows.append(f"       {part}")
        else:
            rows[-1] = f"{rows[-1]} {part}" if rows[-1] else part
    return rows


def session(lines: Sequence[str]) -> str:
    """A terminal with the lines, as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        style = "bold green" if re.match(r"\d/\d  ", line) else ""
        console.print(Text(line, style=style), soft_wrap=True)
    return console.export_svg(title="make demo")


def accuracies(text: str) -> tuple[str, str]:
    """The accuracy of the dense and of the pruned model in a text, an SVG or a page: the figures that must agree.

    Raises:
        ValueError: they are not there.
    """
    plain = text.replace("&#160;", " ")
    found = re.search(r"accuracy:? +(?:dense )?(0\.\d{4}),? +(?:pruned )?(0\.\d{4})", plain)
    if found is None:
        raise ValueError("no accuracy of a dense and a pruned model")
    return found[1], found[2]


def with_block(readme: str, lines: Sequence[str]) -> str:
    """The README with the transcript between its marks."""
    before, rest = readme.split(BEGIN)
    block = "\n".join(("```text", *lines, "```"))
    return f"{before}{BEGIN}{block}\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Runs the demo and writes what the README shows."""
    lines = run_demo()
    shown = transcript(lines)
    (artifact,) = (line.removeprefix(_ARTIFACT) for line in lines if line.startswith(_ARTIFACT))
    README.write_text(with_block(README.read_text(), shown))
    (IMAGES / "session.svg").write_text(session(shown))
    write_picture(Path(artifact), IMAGES / "report.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
