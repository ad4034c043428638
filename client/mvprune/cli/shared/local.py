"""How errors of commands that compute on this machine come out."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from mvprune.cli.shared.errors import LocalRefusal


@contextlib.contextmanager
def refusals(extra: str) -> Iterator[None]:
    """Turns what is wrong with an artifact, an option or this installation into one line and exit code 2. What is only
    slower than it could be is one line of warning.

    Args:
        extra: the extra of the package that brings what may be missing.

    Raises:
        LocalRefusal: what is wrong.
    """
    from mvprune.artifact.errors import ArtifactError, MissingExtra, needs

    try:
        with warnings.catch_warnings(), needs("this", extra):
            warnings.showwarning = functools.partial(_show_warning, warnings.showwarning)
            yield
    except (ArtifactError, MissingExtra) as error:
        raise LocalRefusal(str(error)) from error


def _show_warning(others: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any) -> None:
    if category.__module__.startswith("mvprune."):
        print(f"warning: {message}", file=sys.stderr)
    else:
        others(message, category, *place)
