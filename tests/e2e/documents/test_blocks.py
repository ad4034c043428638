"""How blocks are read, cut and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from .blocks import ROOT, Block, blocks_of, missing


def block(language: str, text: str) -> Block:
    return Block("docs/page.md", 3, language, text)


def test_blocks_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.e2e.documents.blocks.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n1. A step:\n\n   ```sh\n   make\n   ```\n\n```\nbare\n```\n")
    assert blocks_of(page) == [Block("page.md", 6, "sh", "make\n"), Block("page.md", 10, "", "bare\n")]
    assert (ROOT / "docs" / "cli.md").exists()


def test_sessions() -> None:
    session = block("console", "$ one \\\n    --more  # it's here\nout\n$ two '{\n}'\n$ echo $?\n5\n")
    assert list(session.sessions) == [
        ("one \\\n    --more  # it's here", "out\n"),
        ("two '{\n}'", ""),
        ("echo $?", "5\n"),
    ]
    with pytest.raises(AssertionError, match="begins with"):
        list(block("console", "out\n").sessions)


@pytest.mark.parametrize(
    ("language", "text", "left"),
    [
        ("sh", "a \\\n  b\nc\n", "c\n"),
        ("console", "$ a\n$ c\n", "$ c\n"),
        ("python", "import c\na = 1\n", ""),
        ("text", "c\na\n", ""),
        ("python", "import c\n", "import c\n"),
    ],
)
def test_exempt_lines(language: str, text: str, left: str) -> None:
    assert block(language, text).without(["a"]).text == left


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("bytes  84.5 kB  1.2x larger", "bytes 3 MB 4x smaller"),
        ("job sst2-k3h9x2 submitted", "job sst2-zzzzz1 submitted"),
        ("up since 2026-11-21 11:08:30 UTC, 4m12s", "up since 2027-01-01 00:00:00 UTC, 1s"),
        ("note: the folder config.json (660 B), …", "note: the folder config.json (1.2 kB), other (3 B)"),
        ('{"score":0.9,"label":"a"}', '{"label": "b", "score": 0.1, "more": []}'),
        ("a\n…\nb", "a\nx\ny\nb"),
        ("3f2a91c0b7de  m", "a" + 10 * "0" + "b  m"),
    ],
)
def test_lines_of_one_form(shown: str, came: str) -> None:
    assert missing(shown, f"before\n{came}\nafter\n") is None


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("state SUCCEEDED", "state FAILED"),
        ("a\nb", "b\na"),
        ('{"score":0.9}', '{"score": "high"}'),
        ('{"score":0.9}', '{"value": 0.9}'),
        ("accuracy 0.9", "accuracy"),
    ],
)
def test_lines_of_another_form(shown: str, came: str) -> None:
    assert missing(shown, came) == shown.splitlines()[-1]
