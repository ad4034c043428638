"""Lists that come page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from mvprune.client.transport import Transport
from mvprune.common.exceptions import bad_field

_PAGE = 500  # the most that the server gives at once


async def listed(
    transport: Transport, method: Any, request: Any, field: str, limit: int | None = None
) -> AsyncGenerator[Any, None]:
    """The messages of a list, whose pages are fetched when they are needed.

    Args:
        transport: the way to the server.
        method: lists a page.
        request: of `method`.
        field: of its answers, which has the messages.
        limit: messages at most; None: all.

    Raises:
        InvalidArgument: the limit is below 0.
    """
    if limit is not None and limit < 0:
        raise bad_field("limit", f"must be at least 0, got {limit}")
    request.page_size = min(_PAGE, limit or _PAGE)
    left = limit
    while True:
        page = await transport.call(method, request)
        messages = getattr(page, field)
        for message in messages[:left]:
            yield message
        if left is not None and (left := left - len(messages)) <= 0:
            return
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
