"""What other packages add: methods, kinds of task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def plugins(group: str, name: str = "") -> Iterator[Any]:
    """What installed packages have as entry points of a group, with a name or with any.

    Raises:
        ImportError, AttributeError: an entry point names what its package does not have.
    """
    from importlib.metadata import entry_points  # reading them takes a while

    for point in entry_points(group=group, name=name) if name else entry_points(group=group):
        yield point.load()
