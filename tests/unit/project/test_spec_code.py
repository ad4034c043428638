"""The files that scripts/spec_code.py makes are current."""

from __future__ import annotations

import spec_code


def test_generated_files_are_what_the_contract_gives() -> None:
    stale = [path.name for path, text in spec_code.outputs().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], f"run `{spec_code.COMMAND}`"


def test_every_group_of_options_has_a_table() -> None:
    assert {"methods", "keys", "training", "method", "limits"} <= spec_code.tables().keys()
    assert all(
        f"<!-- table: {name} -->" in (spec_code.DOCS / page).read_text()
        for page, name in (
            ("submit.md", "methods"),
            ("submit.md", "training"),
            ("submit.md", "limits"),
            ("job-file.md", "keys"),
        )
    )
