"""docs/api.md says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import api_reference
import pytest

import mvprune


@pytest.fixture(scope="module")
def page() -> str:
    return api_reference.render()


def test_the_committed_page_is_what_the_docstrings_give(page: str) -> None:
    assert page == api_reference.PAGE.read_text(encoding="utf-8"), f"run `{api_reference.COMMAND}`"


def test_all_that_users_import_is_on_it(page: str) -> None:
    told = {line.removeprefix("### `").removesuffix("`") for line in page.splitlines() if line.startswith("### `")}
    assert {f"mvprune.{name}" for name in mvprune.__all__} - {"mvprune.__version__"} <= told


def test_every_signature_is_followed_by_words(page: str) -> None:
    for block in re.split(r"\n#{2,4} ", page)[1:]:
        title = block.splitlines()[0]
        if "```python" in block and "Async" not in title:  # those are told by the ones that block
            assert block.split("```")[2].strip(), title


def test_a_stale_page_is_found(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "docs" / "api.md"
    copy.parent.mkdir()
    copy.write_text(page.replace("density", "sparsity"), encoding="utf-8")
    monkeypatch.setattr(api_reference, "PAGE", copy)
    monkeypatch.setattr(api_reference, "render", lambda: page)
    monkeypatch.setattr(api_reference, "ROOT", tmp_path)
    assert api_reference.main(["--check"]) == 1
    assert capsys.readouterr().err == "error: docs/api.md is stale: run `python scripts/api_reference.py`\n"
    assert api_reference.main([]) == 0
    assert api_reference.main(["--check"]) == 0
