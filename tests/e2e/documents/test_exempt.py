"""What the pages are read with fits the pages."""

from __future__ import annotations

import pytest

from .blocks import DATA, RUN, SHOWN
from .exempt import EXEMPT, Exempt
from .names import BEFORE, INSTEAD
from .pages import BLOCKS


def test_every_language_is_known() -> None:
    assert {block.language for blocks in BLOCKS.values() for block in blocks} <= {*RUN, SHOWN, *DATA}


@pytest.mark.parametrize("exempt", EXEMPT, ids=lambda one: f"{one.page}: {one.start}")
def test_an_exemption_is_needed(exempt: Exempt) -> None:
    assert any(exempt.matches(block) for block in BLOCKS[exempt.page])


@pytest.mark.parametrize(("page", "shown"), [*INSTEAD, *BEFORE])
def test_a_replacement_is_needed(page: str, shown: str) -> None:
    assert any(shown in block.text for block in BLOCKS[page])
