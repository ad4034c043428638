"""How errors of commands that compute on this machine come out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mvprune.cli._errors import LocalRefusal


@contextlib.contextmanager
def refusals(extra: str) -> Iterator[None]:
    """Turns what is wrong with an artifact, an option or this installation into one line and exit code 2.

    Args:
        extra: the extra of the package that brings what may be missing.

    Raises:
        LocalRefusal: what is wrong.
    """
    from mvprune.artifact.errors import ArtifactError, MissingExtra, needs

    try:
        with needs("this", extra):
            yield
    except (ArtifactError, MissingExtra) as error:
        raise LocalRefusal(str(error)) from error
