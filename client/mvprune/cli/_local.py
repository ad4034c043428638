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
    from mvprune.artifact import ArtifactError, MissingExtra

    try:
        yield
    except (ArtifactError, MissingExtra) as error:
        raise LocalRefusal(str(error)) from error
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mvprune"):
            raise
        raise LocalRefusal(f"this needs the package {error.name}: pip install 'mvprune[{extra}]'") from error
