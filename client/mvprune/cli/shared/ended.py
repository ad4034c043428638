"""How waiting for a job ended: what is printed and reported of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mvprune.client.models import Artifact, JobRecord
    from mvprune.common.exceptions import MvpruneError


class Ended(NamedTuple):
    """How waiting for a job ended.

    Attributes:
        given: the job as the user named it.
        job: None where the server did not show it.
        artifact: of a job that has SUCCEEDED.
        error: why there is no artifact; always set where there is no job.
    """

    given: str
    job: JobRecord | None
    artifact: Artifact | None = None
    error: MvpruneError | None = None
