"""Tools of the server: what each takes and answers, and whether it changes anything."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mcp.types import Tool as Described
from mcp.types import ToolAnnotations
from pydantic import TypeAdapter

from mvprune.client.async_client import AsyncClient
from mvprune.mcp.arguments import Argument, schema_of


class Rights(NamedTuple):
    """What callers may do beside reading.

    Attributes:
        changes: whether jobs and sweeps may be created, changed and deleted.
        downloads: the folder below which artifacts are written; None: nowhere.
        files: the folder of models and data of this machine that may be sent; None: none may.
    """

    changes: bool = False
    downloads: Path | None = None
    files: Path | None = None


class Call(NamedTuple):
    """One call of a tool.

    Attributes:
        client: with the caller's token.
        given: the arguments, checked.
        tell: tells the caller of progress: seconds of how many, and a text.
    """

    client: AsyncClient
    given: Mapping[str, Any]
    rights: Rights
    tell: Callable[[float, float, str], Awaitable[None]]


class Answer(NamedTuple):
    """What a tool answers: a text, and the same as a dataclass."""

    text: str
    data: Any


@dataclass(frozen=True)
class Tool:
    """A tool.

    Attributes:
        help: what it is for, for whoever chooses among tools.
        answers: the dataclass of its answer.
        changes: whether it changes something on the server.
        destroys: whether what it changes cannot be had back.
        writes: whether it writes files on this machine.
        repeatable: whether calling it twice is as good as once.
    """

    name: str
    title: str
    help: str
    arguments: Mapping[str, Argument]
    answers: type
    call: Callable[[Call], Awaitable[Answer]]
    changes: bool = False
    destroys: bool = False
    writes: bool = False
    repeatable: bool = True

    def is_offered(self, rights: Rights) -> bool:
        """Whether callers with these rights may use it."""
        return (rights.changes or not self.changes) and (rights.downloads is not None or not self.writes)

    @functools.cached_property
    def described(self) -> Described:
        """It, as the protocol describes tools."""
        is_read_only = not (self.changes or self.writes)
        return Described(
            name=self.name,
            title=self.title,
            description=self.help,
            input_schema=schema_of(self.arguments),
            output_schema=_untitled(TypeAdapter(self.answers).json_schema(mode="serialization")),
            annotations=ToolAnnotations(
                title=self.title,
                read_only_hint=is_read_only,
                destructive_hint=None if is_read_only else self.destroys,
                idempotent_hint=None if is_read_only else self.repeatable,
                open_world_hint=False,
            ),
        )


def _untitled(schema: Any) -> Any:
    """Without titles, which say nothing that names do not say."""
    if isinstance(schema, dict):
        return {
            key: _untitled(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))
        }
    return [_untitled(one) for one in schema] if isinstance(schema, list) else schema
