"""Lists page by page, by the server's own tokens: what is before a page is not read again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from mvprune.client.transport import Transport
from mvprune.common.exceptions import bad_field
from mvprune.mcp.arguments import text

_Item = TypeVar("_Item")
Fetch = Callable[[str, int], Awaitable[tuple[Sequence[_Item], str]]]
"""Some items from a token on ("": from the beginning), and the token of those after them, "" at the end."""
PAGE = text("`next_page` of the answer before this one; leave it out for the first page")
_SEARCHED = 2_000  # entries among which those that fit are looked for by one call


def of_server(
    transport: Transport, method: Any, request: Any, field: str, make: Callable[[Any], _Item]
) -> Fetch[_Item]:
    """A list of the server.

    Args:
        field: of its answers, which has the messages.
        make: the model of a message.
    """

    async def fetch(token: str, size: int) -> tuple[Sequence[_Item], str]:
        request.page_size, request.page_token = size, token
        answer = await transport.call(method, request)
        return [make(message) for message in getattr(answer, field)], answer.next_page_token

    return fetch


def of_items(items: Sequence[_Item]) -> Fetch[_Item]:
    """What is known here."""

    async def fetch(token: str, size: int) -> tuple[Sequence[_Item], str]:
        start = int(token or 0) if token.isdecimal() or not token else len(items)
        return items[start : start + size], str(start + size) if len(items) > start + size else ""

    return fetch


async def page(
    fetch: Fetch[_Item], given: str, limit: int, fits: Callable[[_Item], bool] = lambda item: True
) -> tuple[list[_Item], str]:
    """A page of a list, and `next_page`, "" at the end. A search may give a page with fewer items, or none.

    Args:
        given: `next_page` of the page before; "": the first page.
        fits: whether an item is wanted.

    Raises:
        InvalidArgument: `given` is of no answer.
    """
    token, plus, left_out = given.rpartition("+")
    if given and not (plus and left_out.isdecimal()):
        raise bad_field("page", f"must be the next_page of an answer, got {given[:100]!r}")
    start, kept, seen = int(left_out or 0), list[_Item](), 0
    while True:
        items, following = await fetch(token, limit)
        for place, item in enumerate(items[start:], start + 1):
            if fits(item):
                kept.append(item)
            if len(kept) == limit and place < len(items):
                return kept, f"{token}+{place}"
        seen += len(items)
        if not following or len(kept) == limit or seen >= _SEARCHED:
            return kept, f"{following}+0" if following else ""
        token, start = following, 0


def more(next_page: str) -> str:
    """The line that leads to the next page; "" at the end."""
    return f"\nmore: call again with page={next_page}" if next_page else ""
