"""Commands about an artifact's folder on this machine: their parser, and how their errors come out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mvprune.cli._errors import LocalRefusal
from mvprune.cli._options import Parser, path, plain_parser


def artifact_parser(name: str, example: str, details: str = "") -> Parser:
    """A parser with the artifact's folder, its base, and the form of the answer."""
    parser = plain_parser(name, example, details)
    parser.add_argument("artifact", type=path, metavar="ARTIFACT", help="an artifact's folder")
    parser.add_argument("--base", type=path, metavar="DIR", help="the base model's folder, for a delta artifact")
    return parser


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
