"""Lists that come page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from mvprune.client.transport import Transport

PAGE = 500  # the most that the server gives at once


async def pages(transport: Transport, method: Any, request: Any, page_size: int = PAGE) -> AsyncGenerator[Any, None]:
    """The answers to a request for a list, each fetched when it is needed."""
    request.page_size = page_size
    while True:
        page = await transport.call(method, request)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
