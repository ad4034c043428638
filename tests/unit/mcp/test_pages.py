"""Pages of lists: nothing is read twice, nothing is left out, and what is no page is said."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mvprune.common.exceptions import InvalidArgument
from mvprune.mcp.pages import Fetch, of_items, page


def counted(asked: list[str], size: int = 100) -> Fetch[int]:
    """The numbers below `size`, with tokens of the server's own, which may have any characters."""

    async def fetch(token: str, most: int) -> tuple[Sequence[int], str]:
        asked.append(token)
        start = int(token.removeprefix("a+b/")) if token else 0
        items = range(start, min(size, start + most))
        return items, f"a+b/{start + most}" if start + most < size else ""

    return fetch


async def read_all(fetch: Fetch[int], limit: int, divisor: int) -> list[list[int]]:
    """All pages."""
    pages, after = [], "begin"
    while after:
        found, after = await page(fetch, "" if after == "begin" else after, limit, lambda item: item % divisor == 0)
        assert len(found) <= limit
        pages.append(found)
    return pages


@pytest.mark.parametrize("limit", [1, 7, 100, 200])
@pytest.mark.parametrize("divisor", [1, 3, 1000])
async def test_all_items_come_once(limit: int, divisor: int) -> None:
    for fetch in (counted([]), of_items(range(100))):
        pages = await read_all(fetch, limit, divisor)
        assert [one for found in pages for one in found] == [*range(0, 100, divisor)]


async def test_what_is_before_a_page_is_not_read_again() -> None:
    asked: list[str] = []
    await read_all(counted(asked), 10, 1)
    assert len(asked) == len(set(asked)) == 10


async def test_a_search_ends_and_can_be_continued() -> None:
    asked: list[str] = []
    found, after = await page(counted(asked, 100_000), "", 100, lambda item: item == 50_000)
    assert (found, len(asked)) == ([], 20)
    while not found:
        found, after = await page(counted(asked, 100_000), after, 100, lambda item: item == 50_000)
    assert found == [50_000]


@pytest.mark.parametrize("given", ["x", "7", "a+b", "+", "1+-1"])
async def test_what_is_no_page_is_refused(given: str) -> None:
    with pytest.raises(InvalidArgument, match="must be the next_page of an answer"):
        await page(counted([]), given, 10)
