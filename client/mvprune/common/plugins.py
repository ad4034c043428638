"""What other packages add: methods, kinds of task."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from typing import Any


def classes_in(package: str, path: Iterable[str], base: type, mark: str) -> Iterator[Any]:
    """The subclasses of `base` in the modules of a package that set the attribute `mark` themselves, in the order of
    the modules and then of their own names."""
    for module in pkgutil.iter_modules(path):
        for _, cls in sorted(vars(importlib.import_module(f"{package}.{module.name}")).items()):
            if isinstance(cls, type) and issubclass(cls, base) and mark in vars(cls):
                yield cls


def plugins(group: str, name: str = "") -> Iterator[Any]:
    """What installed packages have as entry points of a group, with a name or with any.

    Raises:
        ImportError, AttributeError: an entry point names what its package does not have.
    """
    from importlib.metadata import entry_points  # reading them takes a while

    for point in entry_points(group=group, name=name) if name else entry_points(group=group):
        yield point.load()
