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


def test_every_figure_of_the_readme_is_in_the_measurements():
    table = re.search(r"^\| measure \| mvprune .*?(?=\n\n)", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert table is not None
    rows = [row.split("|")[1:5] for row in table[0].splitlines()[2:]]
    assert 0 < len(rows) <= 6
    measured = "".join((ROOT / "docs" / f"{page}.md").read_text() for page in ("benchmarks", "runtime", "results"))
    figures = re.findall(r"−?[\d.]+(?=×| MB| ms| points)", " ".join(cell for row in rows for cell in row[1:3]))
    missing = [figure for figure in figures if not re.search(rf"(?<![\d.]){figure.replace('−', '-')}(?!\d)", measured)]
    assert len(figures) > 12
    assert missing == []


@pytest.mark.parametrize(
    "document",
    [
        page for page in DOCUMENTS if page not in (ROOT / "docs" / "api.md", ROOT / "research" / "results.md")
    ],  # generated
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_lines_have_at_most_120_characters(document: Path):
    """Lines of tables and of blocks of code may be longer: they cannot be broken."""
    text = re.sub(r"^( *)```.*?^\1```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    ", "!["))]
    assert [line for line in lines if len(line) > 120] == []
