"""`make pictures`: one run of the demo, and what the README shows of it: its output and its report.

python scripts/pictures.py    # runs the demo, some minutes
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from report_picture import write_picture

ROOT = Path(__file__).parents[1]
README, PICTURE = ROOT / "README.md", ROOT / "docs" / "images" / "report.svg"
BEGIN, END = "<!-- make pictures: begin -->\n", "<!-- make pictures: end -->\n"
COLUMNS = 110
_COMMANDS = ("3/4  mvpctl ", "     mvpctl ")
_LEFT_OUT = re.compile(r"ACTIVE\b|fetching and verifying|\d/4  |     in a browser")
_PATH = re.compile(rf"{re.escape(str(ROOT))}/(?:\.demo/inputs/\S*/)?")
_ARTIFACT = "the artifact, with its manifest.json, is in "


def run_demo() -> list[str]:
    """The demo's lines, which are printed as they come. Raises SystemExit where it fails."""
    command = [sys.executable, ROOT / "scripts" / "demo.py"]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as demo:
        for line in demo.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    if demo.returncode:
        sys.exit(demo.returncode)
    return lines


def transcript(lines: Sequence[str]) -> list[str]:
    """The commands and their answers, without progress and this machine's paths."""
    shown: list[str] = []
    for line in lines:
        if line.startswith(_COMMANDS):
            shown += folded(f"$ {_PATH.sub(_short, line[5:])}")
        elif not _LEFT_OUT.match(line):
            shown.append(_PATH.sub(_short, line))
    return shown


def _short(found: re.Match[str]) -> str:
    return "…/" if ".demo/inputs" in found[0] else ""


def folded(line: str) -> list[str]:
    """A command in as many lines as it needs, broken before options."""
    parts, rows = re.split(r" (?=--)", line), [""]
    for part in parts:
        if rows[-1] and len(rows[-1]) + 1 + len(part) > COLUMNS:
            rows.append(f"    {part}")
        else:
            rows[-1] = f"{rows[-1]} {part}" if rows[-1] else part
    return rows


def accuracy(text: str) -> str:
    """The accuracy of the pruned model in a text or an SVG.

    Raises:
        ValueError: the text has none.
    """
    found = re.search(r"accuracy(?:: dense 0\.\d{4}, pruned)? (0\.\d{4})", text.replace("&#160;", " "))
    if found is None:
        raise ValueError("no accuracy of a pruned model")
    return found[1]


def with_block(readme: str, lines: Sequence[str]) -> str:
    """The README with the transcript between its marks."""
    before, rest = readme.split(BEGIN)
    block = "\n".join(("```text", *lines, "```"))
    return f"{before}{BEGIN}{block}\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Runs the demo and writes what the README shows."""
    lines = run_demo()
    (artifact,) = (line.removeprefix(_ARTIFACT) for line in lines if line.startswith(_ARTIFACT))
    README.write_text(with_block(README.read_text(), transcript(lines)))
    write_picture(Path(artifact), PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
