"""Prints the section of CHANGELOG.md of a version: python scripts/release_notes.py 1.2.3"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def section(changelog: str, version: str) -> str:
    """What follows the version's heading, up to the next one.

    Raises:
        ValueError: there is no such heading with a date, or nothing follows it.
    """
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}$(.*?)(?=^## \[|\Z)"
    found = re.search(heading, changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise ValueError(f"CHANGELOG.md must have a section `## [{version}] - YYYY-MM-DD`, with the changes; add it")
    return f"{found[1].strip()}\n"


def main(argv: list[str]) -> int:
    """Returns 2 where the changelog has no such version."""
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        sys.stdout.write(section(CHANGELOG.read_text(encoding="utf-8"), argv[0]))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
