"""What can go wrong with an artifact."""

from __future__ import annotations

from mvprune._exceptions import MvpruneError


class ArtifactError(MvpruneError, ValueError):
    """An artifact, or what was to become one, is not valid; one sentence names the file and the part."""


class MissingExtra(MvpruneError, ImportError):
    """The installation lacks the packages that models need; the text holds the line that installs them."""
