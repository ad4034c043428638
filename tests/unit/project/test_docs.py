"""The documents' links lead somewhere."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for folder in ("docs", "contributing", "research", "deploy") for page in ROOT.glob(f"{folder}/**/*.md")),
    ]
)


def anchors(document: Path) -> set[str]:
    """The names of a document's headings, as forges make them; those of equal headings are numbered."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(document: Path):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_headings_have_the_names_that_forges_give_them(tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text("# A `b_c`: d\n## Settings\n## [Settings](x.md)\n### –, or 3 %\n", encoding="utf-8")
    assert anchors(document) == {"a-b_c-d", "settings", "settings-1", "-or-3-"}
