"""The rule for runs that are too short, beside the recorded runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_documentation_has_the_counts_of_the_recorded_runs() -> None:
    command = [sys.executable, ROOT / "research" / "run_length.py"]
    counts = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    page = (ROOT / "docs" / "submit.md").read_text(encoding="utf-8")
    marked = page.partition("<!-- run length -->\n")[2].partition("<!-- end of run length -->")[0]
    assert marked == counts
    assert counts.count("\n| ") == 3
