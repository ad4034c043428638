"""Errors of artifacts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mvprune.common.exceptions import MvpruneError


class ArtifactError(MvpruneError, ValueError):
    """An artifact, or what was to become one, is not valid; one sentence names the file and the part."""


class MissingExtra(MvpruneError, ImportError):
    """The installation lacks the packages that models need; the text holds the line that installs them."""


@contextlib.contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Around imports of packages that not every installation has.

    Args:
        what: is missing them, for the error.
        extra: of this package, which brings them.

    Raises:
        MissingExtra: one is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mvprune"):
            raise
        raise MissingExtra(f"{what} needs the package {error.name}: pip install 'mvprune[{extra}]'") from None
