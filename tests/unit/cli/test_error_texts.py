"""How errors about fields name the options of the command that set them."""

from __future__ import annotations

import pytest

from mvprune.cli.shared.errors import report
from mvprune.common.exceptions import bad_field


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("job.spec.training.max_steps", " (--max-steps)"),
        ("webhook.events[0]", " (--events)"),
        ("webhook.url", ""),
        ("issuer.rules[1].grants", " (--rules)"),
        ("issuer.rules", " (--rules)"),
        ("parent", " (--project)"),
    ],
)
def test_a_field_is_named_with_its_option(field: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(bad_field(field, "must be right")) == 2
    assert capsys.readouterr().err == f"error: {field}{named}: must be right\n"
